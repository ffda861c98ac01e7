"""What comes over a connection to a model server, whatever the server does.  The servers are a few lines of asyncio each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from tenure.gateway.connection import AHEAD
from tenure.gateway.pool import Left, Pool

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: 2\r\n\r\nhi"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(talk: Talk) -> AsyncIterator[int]:
    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    running = await asyncio.start_server(one, "127.0.0.1", 0)
    try:
        yield running.sockets[0].getsockname()[1]
    finally:
        running.close()


async def heard(reader: asyncio.StreamReader) -> bytes:
    """One request's body; raises IncompleteReadError at the end of the connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    return await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))


def says(*parts: bytes, times: int = 1000, end: bool = False) -> Talk:
    """Answers every request of a connection with these bytes, each part a write of its own."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(times):
            try:
                await heard(reader)
            except asyncio.IncompleteReadError:
                return
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.001)
            if end:
                return

    return talk


def play(scene: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scene

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


async def asked(pool: Pool, port: int, body: bytes = b"?", **more: bool) -> tuple[int, bytes]:
    answer = await pool.ask(port, HEAD % len(body), body, **more)
    try:
        return answer.status, await answer.read()
    finally:
        answer.close()


def test_one_connection_carries_one_request_after_the_other() -> None:
    async def scene() -> None:
        connections = 0

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            await says(OK)(reader, writer)

        async with server(talk) as port:
            pool = Pool()
            for _ in range(5):
                assert await asked(pool, port) == (200, b"hi")
            assert connections == 1
            await asyncio.gather(*(asked(pool, port) for _ in range(8)))
            assert connections == 8
            await pool.close()

    play(scene())


@pytest.mark.parametrize(
    ("parts", "end", "expected"),
    [
        ((OK,), False, (200, b"hi")),
        (tuple(bytes([byte]) for byte in OK), False, (200, b"hi")),
        (
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n", b"1\r\ni\r\n0\r\n\r\n"),
            False,
            (200, b"hi"),
        ),
        ((b"HTTP/1.1 100 Continue\r\n\r\n", OK), False, (200, b"hi")),
        ((b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK,), False, (200, b"hi")),
        ((b"HTTP/1.1 204 No Content\r\n\r\n",), False, (204, b"")),
        ((b"HTTP/1.1 304 Not Modified\r\n\r\n",), False, (304, b"")),
        ((b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",), False, (200, b"")),
        ((b"HTTP/1.1 200 OK\r\n\r\n", b"until ", b"the end"), True, (200, b"until the end")),
        ((b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi",), True, (200, b"hi")),
        ((b"HTTP/1.1 500 Oh\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno",), True, (500, b"no")),
    ],
)
def test_every_way_to_end_an_answer_is_understood(
    parts: tuple[bytes, ...], end: bool, expected: tuple[int, bytes]
) -> None:
    async def scene() -> None:
        async with server(says(*parts, end=end)) as port:
            pool = Pool()
            for _ in range(3):
                assert await asked(pool, port) == expected
            await pool.close()

    play(scene())


@pytest.mark.parametrize(
    "parts",
    [
        (b"",),
        (b"HTTP/1.1 200 OK\r\ncontent-le",),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",),
        (b"SSH-2.0-OpenSSH_9.2\r\n",),
        (b"HTTP/1.1 200 OK\r\ncontent-length: two\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000 + b"\r\n\r\n",),
    ],
)
def test_an_answer_that_breaks_off_is_never_taken_for_whole(parts: tuple[bytes, ...]) -> None:
    async def scene() -> None:
        async with server(says(*parts, end=True)) as port:
            pool = Pool()
            with pytest.raises(Left):
                await asked(pool, port)
            await pool.close()

    play(scene())


@pytest.mark.parametrize(
    ("head", "says_so"),
    [
        (b"HTTP/1.1 799 Odd\r\ncontent-length: 2\r\n\r\nhi", "no HTTP"),
        (b"HTTP/1.1 600 Odd\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", "101"),
    ],
)
def test_what_no_client_could_be_told_is_no_answer(head: bytes, says_so: str) -> None:
    async def scene() -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        async with server(says(head)) as port:
            pool = Pool()
            with pytest.raises(Left, match=says_so):
                await asked(pool, port)
            await pool.close()
        assert faults == []

    play(scene())


def test_a_trailer_changes_nothing_in_the_head() -> None:
    async def scene() -> None:
        chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nset-cookie: a=b\r\n\r\n"
        async with server(says(chunked)) as port:
            pool = Pool()
            for _ in range(2):
                answer = await pool.ask(port, HEAD % 1, b"?")
                assert await answer.read() == b"hi"
                assert answer.headers == [(b"transfer-encoding", b"chunked")]
                answer.close()
            await pool.close()

    play(scene())


def test_what_came_before_the_break_is_handed_over_first() -> None:
    async def scene() -> None:
        async with server(says(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", end=True)) as port:
            pool = Pool()
            answer = await pool.ask(port, HEAD % 1, b"?")
            assert await answer.chunk() == b"half"
            with pytest.raises(Left):
                await answer.chunk()
            answer.close()
            await pool.close()

    play(scene())


@pytest.mark.parametrize("again", [True, False])
def test_a_kept_connection_that_the_server_has_closed_is_replaced(again: bool) -> None:
    """A server that keeps connections for one request only, without a word.  What may not be sent twice is not, and the
    next try has a new connection, though others are kept."""

    async def scene() -> None:
        begun = 0

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal begun
            await heard(reader)
            begun += 1
            writer.write(OK)
            await reader.readexactly(1)  # the next request comes, and the server goes instead
            begun += 1

        async with server(talk) as port:
            pool = Pool()
            await asyncio.gather(*(asked(pool, port) for _ in range(4)))
            assert begun == 4
            if again:
                assert await asked(pool, port, again=True) == (200, b"hi")
                assert begun == 6
            else:
                with pytest.raises(Left):
                    await asked(pool, port)
                assert begun == 5, "sent once"
                assert await asked(pool, port) == (200, b"hi"), "on a new connection"
            await pool.close()

    play(scene())


def test_nobody_there_is_told() -> None:
    async def scene() -> None:
        async with server(says(OK)) as port:
            pass
        with pytest.raises(Left):
            await asked(Pool(), port)

    play(scene())


def test_a_server_that_ends_with_a_request_in_a_kept_connection_is_told() -> None:
    """Sent again on a new connection, which nobody takes any more."""

    async def scene() -> None:
        running: asyncio.Server

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await says(OK, times=1)(reader, writer)
            running.close()
            await reader.readexactly(1)
            writer.close()

        running = await asyncio.start_server(talk, "127.0.0.1", 0)
        port = running.sockets[0].getsockname()[1]
        pool = Pool()
        assert await asked(pool, port) == (200, b"hi")
        with pytest.raises(Left):
            await asked(pool, port)
        await pool.close()

    play(scene())


def test_no_body_is_waited_for_where_none_may_come() -> None:
    async def scene() -> None:
        async with server(says(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")) as port:
            pool = Pool()
            for _ in range(2):
                assert await asked(pool, port, bodiless=True) == (200, b"")
            await pool.close()

    play(scene())


def test_a_server_does_not_run_ahead_of_a_slow_reader() -> None:
    async def scene() -> None:
        sent, total, piece = 0, 64 << 20, b"x" * 65536

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await heard(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
            while sent < total:
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
            await says(OK)(reader, writer)

        async with server(talk) as port:
            pool = Pool()
            answer = await pool.ask(port, HEAD % 1, b"?")
            before = -1
            while before != sent:  # until the server has been made to wait
                before = sent
                await asyncio.sleep(0.1)
            assert sent < 16 << 20, "kernel buffers and what lies ahead, and not the answer"
            size = 0
            while part := await answer.chunk():
                assert len(part) <= 4 * AHEAD
                size += len(part)
            answer.close()
            assert size == total
            assert await asked(pool, port) == (200, b"hi"), "the connection goes on after it was made to wait"
            await pool.close()

    play(scene())


def test_an_answer_that_is_left_unread_does_not_spoil_the_next() -> None:
    async def scene() -> None:
        async with server(says(b"HTTP/1.1 200 OK\r\ncontent-length: 400000\r\n\r\n" + b"x" * 400_000)) as port:
            pool = Pool()
            for _ in range(20):
                answer = await pool.ask(port, HEAD % 1, b"?")
                answer.close()
                status, body = await asked(pool, port)
                assert (status, len(body)) == (200, 400_000)
            await pool.close()

    play(scene())


def test_a_server_hears_at_once_that_nobody_waits_any_more() -> None:
    async def scene() -> None:
        begun, gone = asyncio.Event(), asyncio.Event()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await heard(reader)
            begun.set()
            assert await reader.read() == b""
            gone.set()

        async with server(talk) as port:
            pool = Pool()
            waiting = asyncio.ensure_future(asked(pool, port))
            await begun.wait()
            waiting.cancel()
            await gone.wait()
            await pool.close()

    play(scene())


def test_bytes_that_nobody_asked_for_end_a_connection() -> None:
    async def scene() -> None:
        async with server(says(OK + OK)) as port:
            pool = Pool()
            for _ in range(3):
                assert await asked(pool, port) == (200, b"hi")
            await pool.close()

    play(scene())


def test_a_large_body_arrives_whole_and_may_be_answered_early() -> None:
    body = bytes(range(256)) * 80_000  # 20 MB

    async def scene() -> None:
        arrived = b""

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal arrived
            arrived = await heard(reader)
            writer.write(OK)

        async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno")
            await writer.drain()
            await reader.read()

        async with server(talk) as port, server(early) as other:
            pool = Pool()
            assert await asked(pool, port, body) == (200, b"hi")
            assert arrived == body
            assert await asked(pool, other, body) == (413, b"no")
            await pool.close()

    play(scene())
