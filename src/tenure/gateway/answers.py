"""What the gateway itself says, in the shapes that OpenAI's clients branch on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["STREAM_HEADERS", "Refused", "away", "error_body", "error_event", "headers_of", "models_body"]

STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]  # fmt: skip
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "invalid_request_error", 429: "rate_limit_error"}


class Refused(Exception):
    """An answer of ours instead of a model's.  Raised before any byte of one; after pings it becomes an event."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        again: bool = True,
    ) -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message
        self.param, self.retry_after_s, self.again = param, retry_after_s, again


def away() -> Refused:
    return Refused(503, "platform_away", "the platform does not answer; try again", retry_after_s=2)


def error_body(status: int, code: str, message: str, *, param: str | None = None) -> bytes:
    kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    error = {"message": message, "type": kind, "param": param, "code": code}
    return json.dumps({"error": error}, ensure_ascii=False).encode("utf-8", "replace")


def error_event(code: str, message: str) -> bytes:
    """An error within a stream that has begun.  The blank line ends whatever event was cut off before it."""
    return b"\n\ndata: " + error_body(500, code, message) + b"\n\n"


def headers_of(body: bytes, *, retry_after_s: float | None = None, again: bool = True) -> list[tuple[bytes, bytes]]:
    """`again=False` asks OpenAI's clients not to try once more by themselves: it would not help."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if retry_after_s is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(retry_after_s))).encode()))
    if not again:
        headers.append((b"x-should-retry", b"false"))
    return headers


def models_body(rows: Iterable[Mapping[str, Any]], created: int) -> list[dict[str, Any]]:
    """Every model, asleep or not; an adapter is a model of its own, whose parent is the model."""
    listed: list[dict[str, Any]] = []
    for row in rows:
        names: Sequence[tuple[str, str | None]] = [(row["name"], None), *((a, row["name"]) for a in row["adapters"])]
        for name, parent in names:
            one = {"id": name, "object": "model", "created": created, "owned_by": "tenure", "status": row["state"]}
            if parent is None:
                one["aliases"] = row["aliases"]
            else:
                one |= {"parent": parent, "root": parent}
            listed.append(one)
    return listed
