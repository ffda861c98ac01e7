"""One kept connection to a model server: HTTP/1.1, one request at a time, parsed by httptools.

Promises: a body is handed over as it arrives and never read far ahead of a slow reader; an answer that breaks off says so
and is never taken for a short one; a connection is used again only after a whole answer that allows it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

import httptools

__all__ = ["Absent", "Answer", "Connection", "Left"]

AHEAD = 256 * 1024  # bytes that may lie here unread before the server is asked to wait
MAX_HEAD = 256 * 1024


class Left(ConnectionError):
    """The server is not there, or left before its answer was whole."""


class Absent(Left):
    """Nobody listens there: nothing of the request was sent."""


class Answer:
    """A head, and a body that comes as it comes.  `close` always; what was not read then is lost."""

    __slots__ = ("_connection", "content_length", "content_type", "headers", "status")

    def __init__(self, connection: Connection, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._connection: Connection | None = connection
        self.status, self.headers = status, headers
        self.content_length: int | None = None
        self.content_type = ""  # lower case, without parameters
        for name, value in headers:
            if name == b"content-length":
                self.content_length = int(value)
            elif name == b"content-type":
                self.content_type = value.partition(b";")[0].strip().lower().decode("latin-1")

    async def chunk(self) -> bytes:
        """What has come since the last one; empty at the end.  Raises Left where the server broke off."""
        if self._connection is None:
            raise Left("its answer was closed")
        return await self._connection.chunk()

    async def read(self) -> bytes:
        """All of it.  Raises Left."""
        first = await self.chunk()
        if not first or (self._connection is not None and self._connection.drained):
            return first
        parts = [first]
        while part := await self.chunk():
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        """Idempotent: the connection may belong to another request by the second time."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.over()


class Connection(asyncio.Protocol):
    """Belongs to the pool between requests (`free` says that it may), to one request otherwise."""

    def __init__(self, port: int, back: Callable[[Connection], None]) -> None:
        """`back` takes it when its request is over and it may carry another."""
        self.port, self._back = port, back
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._chunks: deque[bytes] = deque()
        self._unread = self._head_size = 0
        self._answer: Answer | None = None
        self._whole, self._until_close, self._bodiless, self._reusable, self._paused = True, False, False, True, False
        self._lost: BaseException | None = None
        self.silent = True  # no byte of this answer has come
        self.idle_since = 0.0

    # ------------------------------------------------------------------ for its user

    @property
    def open(self) -> bool:
        return self._lost is None and not self._transport.is_closing()

    @property
    def free(self) -> bool:
        """The last answer was whole, and the server keeps the connection."""
        return self._whole and self._reusable and self.open

    @property
    def drained(self) -> bool:
        return self._whole and not self._chunks

    async def ask(self, head: bytes, body: bytes, *, bodiless: bool) -> Answer:
        """The answer's head.  `bodiless`: whatever its head says, no body follows (HEAD).  Raises Left."""
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._answer, self._bodiless = [], None, bodiless
        self._whole = self._until_close = self._reusable = False
        self._unread = self._head_size = 0
        self._chunks.clear()
        self.silent = True
        if len(body) < 16384:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        while self._answer is None:
            await self._wait()
        return self._answer

    async def chunk(self) -> bytes:
        while not self._chunks:
            if self._whole:
                return b""
            await self._wait()
        parts = self._chunks
        found = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._unread = 0
        self._resume()
        return found

    def over(self) -> None:
        """Its request is over: what cannot be used again is closed at once, which is how a server hears of it."""
        self._chunks.clear()
        if not self.free:
            self._until_close = False  # the end that follows is ours
            self._transport.abort()
            return
        self._resume()
        self._back(self)

    def close(self) -> None:
        self._transport.close()

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    async def _wait(self) -> None:
        if self._lost is not None:
            raise self._lost
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # ------------------------------------------------------------------ asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by class

    def data_received(self, data: bytes) -> None:
        if self._whole:
            self._transport.abort()  # bytes that nobody asked for: what follows cannot be told apart
            return
        self.silent = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(Left("it answered 101, and nobody had asked for another protocol"))
            self._transport.abort()
            return
        except httptools.HttpParserError as error:
            self._fail(Left(f"it answered what is no HTTP: {error}"))
            self._transport.abort()
            return
        if self._unread > AHEAD and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        return False  # the transport closes itself, and connection_lost follows

    def connection_lost(self, exc: Exception | None) -> None:
        if self._until_close and exc is None:
            self._whole = True
        self._fail(Left(str(exc) or "the connection was reset") if exc else Left("the connection was closed"))

    def _fail(self, error: Left) -> None:
        if self._lost is None:
            self._lost = error
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            if self._whole:
                waiter.set_result(None)
            else:
                waiter.set_exception(self._lost)

    # ------------------------------------------------------------------ httptools' callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._answer is not None:
            return  # a trailer: what stands behind a body changes nothing that stands before it
        self._head_size += len(name) + len(value)
        if self._head_size > MAX_HEAD:
            raise ValueError("its head is too large")
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._answer is not None:
            raise ValueError("two answers to one request")
        status = self._parser.get_status_code()
        if status > 599:
            raise ValueError(f"there is no status {status}")
        if status < 200:  # 100, 103: the answer itself follows
            self._headers = []
            return
        answer = Answer(self, status, self._headers)
        self._reusable = self._parser.should_keep_alive()
        if self._bodiless:
            self._whole, self._reusable = True, False  # the parser waits for a body that never comes
        elif answer.content_length is None and status not in (204, 304):
            self._until_close = not any(
                name == b"transfer-encoding" and b"chunked" in value.lower() for name, value in self._headers
            )
        self._answer = answer
        self._wake()

    def on_body(self, body: bytes) -> None:
        if not self._bodiless:
            self._chunks.append(body)
            self._unread += len(body)
            self._wake()

    def on_message_complete(self) -> None:
        if self._answer is not None:
            self._whole = True
            self._wake()
