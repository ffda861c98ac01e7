"""The way to a model server: what of a request goes there, and what of its answer comes back."""

from __future__ import annotations

from collections.abc import Iterable

from .pool import Absent, Answer, Left, Pool

__all__ = ["Absent", "Answer", "Left", "Upstream", "answer_headers", "request_headers"]

_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
_OURS = _HOP | {b"host", b"authorization", b"proxy-authorization", b"cookie", b"accept-encoding", b"content-length", b"expect", b"x-tenure-wait", b"traceparent", b"x-api-key", b"api-key"}  # fmt: skip
"""Never passed on: what belongs to this connection alone, and everything that proves who the client is."""

_BARE = frozenset({"GET", "HEAD", "DELETE", "OPTIONS", "TRACE"})
"""Methods that say nothing of a body where they have none (RFC 9110, section 8.6)."""

_AGAIN = _BARE | {"PUT"}
"""Methods that may be sent twice (RFC 9110, section 9.2.2)."""


def request_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """A client's headers for the server.  It is asked for plain bytes: what is packed cannot be handed on by chunk."""
    return [*((name, value) for name, value in headers if name not in _OURS), (b"accept-encoding", b"identity")]


def answer_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """A server's headers for the client, their names in lower case as they came."""
    return [pair for pair in headers if pair[0] not in _HOP]


class Upstream:
    """Belongs to the event loop that it is made in."""

    def __init__(self) -> None:
        self._pool = Pool()

    async def send(
        self, method: str, port: int, target: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> Answer:
        """The answer's head; its body is read by the caller, who closes it.  Raises Left."""
        lines = [b"%b %b HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % (method.encode("latin-1"), target, port)]
        lines += [b"%b: %b\r\n" % pair for pair in headers]
        if body or method not in _BARE:
            lines.append(b"content-length: %d\r\n" % len(body))
        lines.append(b"\r\n")
        return await self._pool.ask(port, b"".join(lines), body, bodiless=method == "HEAD", again=method in _AGAIN)

    async def close(self) -> None:
        await self._pool.close()
