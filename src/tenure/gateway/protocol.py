"""HTTP as the gateway speaks it: uvicorn's, and what that leaves out.

Small chunks leave at once.  HTTP/1.0 knows no chunks: a stream to such a client ends with its connection, and is handed on
as it comes all the same.  An answer that cannot be finished cuts the connection, so that nobody takes it for whole.
"""

from __future__ import annotations

import socket
import time
import weakref
from asyncio import Transport
from collections.abc import Callable, MutableMapping
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

__all__ = ["ARRIVED", "Protocol", "abort", "end_by_close", "until_close", "unwatch", "watch", "whole"]

_CONNECTION = "tenure.connection"
_CYCLE = "tenure.cycle"  # a weak reference: a cycle in its own scope would be one that only the collector frees
ARRIVED = "tenure.arrived"
"""When its head was read: what it waits for its turn in the loop, or behind another on its connection, counts too."""
_ENDLESS = 1 << 62

Scope = MutableMapping[str, Any]


class Protocol(HttpToolsProtocol):
    left: Callable[[], None] | None = None  # of the one request that is being answered

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        scope = cast(Scope, self.scope)
        scope[_CONNECTION], scope[_CYCLE], scope[ARRIVED] = self, weakref.ref(self.cycle), time.monotonic()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.left is not None:
            self.left()

    def _unsupported_upgrade_warning(self) -> None:
        """The router says so to the client; the log has no use for it."""


def watch(scope: Scope, left: Callable[[], None]) -> None:
    """`left` is called when the client leaves, also where it has left already.  A task that waits for it would cost more."""
    connection: Protocol = scope[_CONNECTION]
    connection.left = left
    connection.flow.resume_reading()  # who is not read from is not seen to leave
    if connection.transport.is_closing():
        left()


def unwatch(scope: Scope) -> None:
    scope[_CONNECTION].left = None


def until_close(scope: Scope) -> None:
    """Before the headers: the body is as long as the connection."""
    cycle = _cycle(scope)
    cycle.chunked_encoding, cycle.expected_content_length = False, _ENDLESS


async def whole(scope: Scope, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    """A whole answer, its length among the headers, in one write: the client wakes once for it.

    The headers were parsed once, and are not looked at again.
    """
    cycle = _cycle(scope)
    if cycle.flow.write_paused and not cycle.disconnected:
        await cycle.flow.drain()
    if cycle.disconnected:
        return
    parts = [STATUS_LINE[status], *(b"%b: %b\r\n" % pair for pair in headers)]
    if not cycle.keep_alive:
        parts.append(b"connection: close\r\n")
    cycle.transport.write(b"".join((*parts, b"\r\n", body)))
    cycle.response_started, cycle.waiting_for_100_continue = True, False
    _ended(cycle, close=not cycle.keep_alive)


def end_by_close(scope: Scope) -> None:
    """After the last byte of such a body.  What is on its way still leaves."""
    _ended(_cycle(scope), close=True)


def abort(scope: Scope) -> None:
    """In the middle of an answer: nothing more leaves."""
    connection: Protocol = scope[_CONNECTION]
    connection.transport.abort()


def _ended(cycle: RequestResponseCycle, *, close: bool) -> None:
    cycle.response_complete = True
    cycle.message_event.set()
    if close:
        cycle.transport.close()
    cycle.on_response()


def _cycle(scope: Scope) -> RequestResponseCycle:
    """The connection's own word for it is of the newest request, where several were sent at once."""
    cycle: RequestResponseCycle | None = scope[_CYCLE]()
    assert cycle is not None, "it is answering"
    return cycle
