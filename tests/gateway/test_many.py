"""Many at once, slow readers, servers that stall, and a gateway that dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from .conftest import Home, eventually, gateway_pid


def test_a_thousand_are_held_and_all_are_answered(home: Home, tmp_path: Path) -> None:
    home.declare("many", "--load", "3", "--starts", str(tmp_path / "starts"))
    home.reload()

    async def crowd() -> list[int]:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as session:

            async def one() -> int:
                async with session.post(f"{home.url}/chat/completions", json={"model": "many"}) as answer:
                    await answer.read()
                    return answer.status

            return await asyncio.gather(*(one() for _ in range(1100)))

    statuses = asyncio.run(crowd())
    assert set(statuses) <= {200, 429}
    assert statuses.count(200) >= 1024  # the bound of what is held; those above it are told before any byte
    assert len((tmp_path / "starts").read_text().split()) == 1
    row = eventually(lambda: (r := home.model("many"))["held"] == r["in_flight"] == 0 and r)
    assert row["state"] == "ready"


def test_a_slow_reader_gets_every_byte_and_holds_up_nobody(home: Home) -> None:
    home.declare("small")
    home.reload()
    home.chat("small")
    at = urlsplit(home.url)

    async def slowly() -> bytes:
        reader, writer = await asyncio.open_connection(at.hostname, at.port, limit=2048)
        body = json.dumps({"model": "small", "stream": True, "chunks": 20_000}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await asyncio.sleep(0.3)  # it fills up meanwhile, and waits
        quick = await asyncio.to_thread(home.chat, "small")
        assert quick.status == 200
        read = await reader.read(-1)
        writer.close()
        await writer.wait_closed()
        return read

    assert unchunked(asyncio.run(slowly()).partition(b"\r\n\r\n")[2]).count(b"word") == 20_000


def unchunked(data: bytes) -> bytes:
    """The body of a chunked answer: a chunk may begin in the middle of a word."""
    pieces, at = [], 0
    while size := int(data[at : (end := data.index(b"\r\n", at))], 16):
        pieces.append(data[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
    return b"".join(pieces)


def test_a_gateway_that_dies_is_started_again_at_the_same_address(home: Home) -> None:
    home.declare("small")
    home.reload()
    pid = home.chat("small").json["pid"]
    os.kill(gateway_pid(home), signal.SIGKILL)
    assert home.chat("small").json["pid"] == pid  # the model stays up, and the caller waited in the socket's line
