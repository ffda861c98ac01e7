"""A request as a span: part of the caller's trace where it brought one, parent of the server's own.

A span is a few values while its request goes on, and JSON only once it is over: OTLP's file form, a line an export, which
any collector reads (`otlpjsonfile`).  No library of OpenTelemetry's stands in the way of a request.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import otel

__all__ = ["Span", "exported", "span_of"]

TRACEPARENT = re.compile(rb"^00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})$")
SERVER, ERROR = 2, 2  # OTLP's numbers for the kind and the status
_HEAD = (
    f'{{"resourceSpans":[{{"resource":{{"attributes":[{{"key":"{otel.SERVICE}","value":{{"stringValue":"tenure-gateway"}}}}]}},'
    f'"scopeSpans":[{{"scope":{{"name":"tenure.gateway"}},"schemaUrl":"{otel.SCHEMA_URL}","spans":['
)
_text = json.JSONEncoder().encode


@dataclass(slots=True, kw_only=True)
class Span:
    """Ids are lower-case hex.  Times are unix nanoseconds."""

    trace: str
    id: str
    parent: str
    sampled: bool
    began_ns: int
    ended_ns: int = 0
    name: str = ""
    error: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    link: tuple[str, str] | None = None  # the run that answered, as a trace and its first span

    @property
    def header(self) -> str:
        """What the server gets: this span is the parent of its own."""
        return f"00-{self.trace}-{self.id}-{'01' if self.sampled else '00'}"

    def end(self, name: str, attributes: Mapping[str, Any], *, error: str = "") -> None:
        self.ended_ns, self.name, self.error = time.time_ns(), name, error
        self.attributes = {key: value for key, value in attributes.items() if value is not None}


def span_of(headers: Mapping[bytes, bytes]) -> Span:
    """Of a request that begins now.  What a caller does not want recorded is not, and is passed on as such."""
    given = TRACEPARENT.match(headers.get(b"traceparent", b""))
    trace = given[1].decode() if given else f"{random.getrandbits(128) or 1:032x}"
    parent, sampled = (given[2].decode(), bool(int(given[3], 16) & 1)) if given else ("", True)
    return Span(trace=trace, id=f"{random.getrandbits(64) or 1:016x}", parent=parent, sampled=sampled, began_ns=time.time_ns())  # fmt: skip


def exported(spans: Sequence[Span]) -> bytes:
    """One line: an ExportTraceServiceRequest in OTLP's JSON.  Put together by hand, at a tenth of what `json` takes."""
    return (_HEAD + ",".join(map(_json, spans)) + "]}]}]}\n").encode()


def _json(span: Span) -> str:
    said = ",".join(f'{{"key":"{key}","value":{_value(value)}}}' for key, value in span.attributes.items())
    parent = f',"parentSpanId":"{span.parent}"' if span.parent else ""
    status = f',"status":{{"code":{ERROR},"message":{_text(span.error)}}}' if span.error else ""
    links = "" if span.link is None else f',"links":[{{"traceId":"{span.link[0]}","spanId":"{span.link[1]}"}}]'
    return (
        f'{{"traceId":"{span.trace}","spanId":"{span.id}"{parent},"name":{_text(span.name)},"kind":{SERVER},'
        f'"startTimeUnixNano":"{span.began_ns}","endTimeUnixNano":"{span.ended_ns}","attributes":[{said}]{status}{links}}}'
    )


def _value(value: object) -> str:
    """64-bit integers are strings there."""
    if isinstance(value, str):
        return f'{{"stringValue":{_text(value)}}}'
    if isinstance(value, bool):
        return '{"boolValue":true}' if value else '{"boolValue":false}'
    if isinstance(value, int):
        return f'{{"intValue":"{value}"}}'
    return f'{{"doubleValue":{value!r}}}'
