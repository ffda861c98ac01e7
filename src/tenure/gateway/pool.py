"""Connections to model servers, kept between requests.  As many as there are requests at once.

Promises: nothing is sent twice that may not be; where a kept connection turns out to be closed at the other end, the next
try has a new one; nothing is kept for longer than `IDLE_S`, and no timer runs for nothing.
"""

from __future__ import annotations

import asyncio

from .connection import Absent, Answer, Connection, Left

__all__ = ["Absent", "Answer", "Left", "Pool"]

CONNECT_S = 5.0
IDLE_S = 30.0


class Pool:
    """Belongs to the event loop that it is made in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: dict[int, list[Connection]] = {}  # by port, the last used at the end
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def ask(self, port: int, head: bytes, body: bytes, *, bodiless: bool = False, again: bool = False) -> Answer:
        """Send a whole request to 127.0.0.1:port; the answer's head.  The caller reads its body, and closes it.

        `again`: it may be sent twice (RFC 9110, section 9.2.2), so that a kept connection which brings no byte is
        replaced here.  Any other raises Left, and whoever sends it once more does so on a new connection.
        Whoever is cancelled here closes the connection, which is how the server hears of it.
        """
        kept = self._kept(port)
        if kept is not None:
            try:
                return await _ask(kept, head, body, bodiless)
            except Left:
                if kept.silent:
                    self._drop(port)  # the others are as old
                if not (kept.silent and again):
                    raise
        return await _ask(await self._connected(port), head, body, bodiless)

    async def close(self) -> None:
        """Of the connections that nobody uses; the others go with their requests."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for port in list(self._idle):
            self._drop(port)
        await asyncio.sleep(0)  # the loop tells them of it

    async def _connected(self, port: int) -> Connection:
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await self._loop.create_connection(
                    lambda: Connection(port, self._back), "127.0.0.1", port
                )
        except ConnectionRefusedError as error:
            raise Absent(str(error)) from None
        except (OSError, TimeoutError) as error:
            raise Left(str(error) or f"it did not take a connection within {CONNECT_S:g} s") from None
        return connection

    def _kept(self, port: int) -> Connection | None:
        line = self._idle.get(port)
        while line:
            connection = line.pop()
            if connection.free:
                return connection
        return None

    def _drop(self, port: int) -> None:
        for connection in self._idle.pop(port, ()):
            connection.close()

    def _back(self, connection: Connection) -> None:
        if self._closed:
            connection.close()
            return
        connection.idle_since = self._loop.time()
        self._idle.setdefault(connection.port, []).append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(IDLE_S, self._swept)

    def _swept(self) -> None:
        self._sweep = None
        oldest = self._loop.time() - IDLE_S
        for port, line in list(self._idle.items()):
            for connection in line:
                if connection.idle_since <= oldest:
                    connection.close()
            self._idle[port] = [connection for connection in line if connection.free]
            if not self._idle[port]:
                del self._idle[port]
        if self._idle:
            self._sweep = self._loop.call_later(IDLE_S / 2, self._swept)


async def _ask(connection: Connection, head: bytes, body: bytes, bodiless: bool) -> Answer:
    try:
        return await connection.ask(head, body, bodiless=bodiless)
    except BaseException:
        connection.over()
        raise
