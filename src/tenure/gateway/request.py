"""One request and its facts: what was asked, how far it is, and what is told of it afterwards.

The body is read whole, because it names the model; no fact holds any of it but the model's name.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from .allowance import Headers, Rights
from .answers import Refused
from .protocol import end_by_close, until_close
from .usage import Usage

__all__ = ["Receive", "Request", "Scope", "Send", "gone", "read_body"]

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
    limits: Headers = field(default_factory=list)  # how it stands, for the answer
    counted: bool = False  # it has its place within the token's rate: what it costs is counted, too
    stream: bool = False
    inference: bool = False
    begun: bool = False  # headers are out (a held stream has its pings)
    events: bool = False  # what follows them are events, so that an error may be one
    passed: bool = False  # something of the server's own answer is out: it is not sent again
    left: bool = False  # the client went before the end
    done: bool = False
    waited: bool = False
    held_s: float = 0.0
    first_byte_s: float | None = None
    run: str | None = None
    status: int = 0
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
        self.status = status

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
            "streamed": self.stream,
            "first_byte_s": None if self.first_byte_s is None else round(self.first_byte_s, 6),
            "seconds": round(time.monotonic() - self.arrived, 6),
            "run": self.run,
            **({} if self.usage is None else self.usage.said),
            **self.facts,
        }


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


async def gone(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
