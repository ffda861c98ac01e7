"""One request and its facts: what was asked, how far it is, and what is told of it afterwards.

The body is read whole, because it names the model; no fact holds any of it but the model's name.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from . import otel
from .allowance import Headers, Rights
from .answers import Refused
from .expected import NOTHING, Expected
from .protocol import end_by_close, until_close, whole
from .refusals import Refusal
from .spans import Span
from .usage import Usage

__all__ = ["Receive", "Request", "Scope", "Send", "read_body"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MAX_BODY = 256 * 1024 * 1024


@dataclass(slots=True)
class Request:
    """One request on its way.  Times are of the monotonic clock, in seconds."""

    id: int
    scope: Scope
    send: Send
    method: str
    path: str
    arrived: float
    body: bytes = b""
    model: str = ""
    asked_as: str = ""
    adapter: str | None = None
    who: str = ""  # the name of its token
    rights: Rights | None = None  # what that may do; None where nobody has to be known
    fingerprint: str = ""  # of a token that nobody knows
    limits: Headers = field(default_factory=list)  # how it stands, for the answer
    counted: bool = False  # it has its place within the token's rate: what it costs is counted, too
    expected: Expected = NOTHING  # what it may cost
    aside: int = 0  # how much of that is set aside for it
    stream: bool = False
    inference: bool = False
    begun: bool = False  # headers are out (a held stream has its pings)
    events: bool = False  # what follows them are events, so that an error may be one
    passed: bool = False  # something of the server's own answer is out: it is not sent again
    left: bool = False  # the client went before the end
    done: bool = False
    waited: bool = False
    woke: bool = False  # it is the one that woke its model
    keep_alive_s: float | None = None  # what it asks to keep its model for
    sent_at: float | None = None  # when it went to its server, the last time
    port: int | None = None
    span: Span | None = None
    held_s: float = 0.0
    first_byte_s: float | None = None
    run: str | None = None
    status: int = 0
    answered: int = 0  # the status of the server's own answer, once there is one
    usage: Usage | None = None  # of its answer, once there is something of one
    facts: dict[str, Any] = field(default_factory=dict)

    _endless: bool = False  # the answer ends with its connection

    async def start(self, status: int, headers: list[tuple[bytes, bytes]], *, events: bool = False) -> None:
        """The head of the answer."""
        self.begun, self.events, self.status = True, events, status
        if self.scope["http_version"] == "1.0" and not any(name == b"content-length" for name, _ in headers):
            until_close(self.scope)
            self._endless = True
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def more(self, body: bytes) -> None:
        """Waits while the client reads more slowly than this comes."""
        await self.send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, body: bytes = b"") -> None:
        self.done = True
        if not self._endless:
            await self.send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})
            return
        if body:
            await self.more(body)
        end_by_close(self.scope)

    async def whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Head and body at once, where nothing is out yet."""
        self.begun, self.status, self.done = True, status, True
        await whole(self.scope, status, headers, body)

    @property
    def what(self) -> str:
        return f"{self.method} {self.path}"

    def saw(self, chunk: bytes) -> None:
        """The next piece of the answer."""
        if self.usage is None:
            self.usage = Usage(stream=self.stream)
        self.usage.saw(chunk)

    def first_byte(self, status: int) -> None:
        self.first_byte_s = time.monotonic() - self.arrived
        self.status = self.answered = status

    def cost(self) -> int:
        """In model tokens.  A server that failed has cost what it says; one that was left has read the prompt."""
        failed = self.answered >= 400 or (not self.answered and not self.left)
        if self.sent_at is None or (failed and self.usage is None):
            return 0
        usage = self.usage or Usage(stream=self.stream)
        whole = not self.left and not self.facts.get("cut")
        return usage.tokens(whole=whole, expected=NOTHING if failed else self.expected)

    def refusal(self, status: int, code: str) -> Refusal:
        """What the log may say of it."""
        client = self.scope.get("client")
        return Refusal(
            status=status, code=code, token=self.who, fingerprint=self.fingerprint, model=self.model, client=client[0] if client else "",
        )  # fmt: skip

    def line(self) -> dict[str, Any]:
        """What is told of it, when it is over."""
        return {
            "model": self.model,
            "adapter": self.adapter,
            "who": self.who or None,
            "path": self.path,
            "status": self.status,
            "left": self.left,
            "held_s": round(self.held_s, 4),
            "held": self.waited,
            "woke": self.woke,
            "streamed": self.stream,
            "first_byte_s": None if self.first_byte_s is None else round(self.first_byte_s, 6),
            "seconds": round(time.monotonic() - self.arrived, 6),
            "run": self.run,
            "trace": None if self.span is None else self.span.trace,
            **({} if self.usage is None else self.usage.said),
            **self.facts,
        }

    def answered_by(self, traceparent: str | None) -> None:
        """The run that answers is a trace of its own."""
        if self.span is not None and traceparent is not None:
            _, trace, first, _ = traceparent.split("-")
            self.span.link = (trace, first)

    def ended(self) -> Span | None:
        """Its span, with what is to be told of it; None for one that is not to be recorded."""
        span = self.span
        if span is None or not span.sampled:
            return None
        said = {} if self.usage is None else self.usage.said
        code = self.facts.get("code") or ("upstream_failed" if self.facts.get("cut") else "")
        failed = self.status >= 500 or bool(self.facts.get("cut"))
        operation = otel.operation_of(self.path)
        span.end(
            f"{operation} {self.model}",
            {
                otel.OPERATION: operation,
                otel.REQUEST_MODEL: self.asked_as,
                otel.RESPONSE_MODEL: self.adapter or self.model,
                otel.REQUEST_STREAM: self.stream,
                otel.FIRST_CHUNK: self.first_byte_s,
                otel.INPUT_TOKENS: said.get("prompt_tokens"),
                otel.OUTPUT_TOKENS: said.get("completion_tokens"),
                otel.METHOD: self.method,
                otel.PATH: self.path,
                otel.STATUS: self.status,
                otel.ERROR: code or (str(self.status) if failed else None),
                otel.SERVER_ADDRESS: None if self.port is None else "127.0.0.1",
                otel.SERVER_PORT: self.port,
                otel.RUN: self.run,
                otel.JOB: None if self.run is None else self.run.partition(".")[0],
                otel.ADAPTER: self.adapter,
                otel.TOKEN: self.who or None,
                otel.HELD: self.waited,
                otel.HELD_S: self.held_s if self.waited else None,
                otel.WOKE: self.woke,
                otel.LEFT: self.left or None,
            },
            error=(code or str(self.status)) if failed else "",
        )
        return span


async def read_body(receive: Receive, headers: Mapping[bytes, bytes]) -> bytes:
    """The whole body.  Raises 413, and 499 where the client left before its end."""
    too_large = Refused(413, "body_too_large", f"a body of more than {MAX_BODY >> 20} MiB is not taken")
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and int(length) > MAX_BODY:
        raise too_large
    pieces, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(499, "client_left", "the client left before its request was whole")
        piece = message.get("body", b"")
        size += len(piece)
        if size > MAX_BODY:
            raise too_large
        if piece:
            pieces.append(piece)
        if not message.get("more_body"):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
