"""HTTP as the gateway speaks it: uvicorn's, and what that leaves out.

Small chunks leave at once.  HTTP/1.0 knows no chunks: a stream to such a client ends with its connection, and is handed on
as it comes all the same.  An answer that cannot be finished cuts the connection, so that nobody takes it for whole.
"""

from __future__ import annotations

import socket
import time
from asyncio import Transport
from collections.abc import MutableMapping
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

__all__ = ["ARRIVED", "Protocol", "abort", "end_by_close", "until_close"]

_CYCLE = "tenure.cycle"
ARRIVED = "tenure.arrived"
"""When its head was read: what it waits for its turn in the loop, or behind another on its connection, counts too."""
_ENDLESS = 1 << 62


class Protocol(HttpToolsProtocol):
    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        scope = cast(MutableMapping[str, Any], self.scope)
        scope[_CYCLE], scope[ARRIVED] = self.cycle, time.monotonic()

    def _unsupported_upgrade_warning(self) -> None:
        """The router says so to the client; the log has no use for it."""


def until_close(scope: MutableMapping[str, Any]) -> None:
    """Before the headers: the body is as long as the connection."""
    cycle: RequestResponseCycle = scope[_CYCLE]
    cycle.chunked_encoding, cycle.expected_content_length = False, _ENDLESS


def end_by_close(scope: MutableMapping[str, Any]) -> None:
    """After the last byte of such a body.  What is on its way still leaves."""
    cycle: RequestResponseCycle = scope[_CYCLE]
    cycle.response_complete = True
    cycle.message_event.set()
    cycle.transport.close()
    cycle.on_response()


def abort(scope: MutableMapping[str, Any]) -> None:
    """In the middle of an answer: nothing more leaves."""
    cycle: RequestResponseCycle = scope[_CYCLE]
    cycle.transport.abort()
