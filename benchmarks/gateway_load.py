"""Load: N kept connections ask one after the other for some seconds; prints answers a second.  `PORT N SECONDS`, the body on stdin."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import cast

import uvloop


class Client(asyncio.Protocol):
    count = 0
    over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by class
        self.rest = b""
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        self.rest += data
        head, mark, body = self.rest.partition(b"\r\n\r\n")
        if not mark:
            return
        size = next(int(x.partition(b":")[2]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:"))
        if len(body) >= size:
            assert b" 200 " in head[:20], head
            self.rest = b""
            Client.count += 1
            if not Client.over:
                self.transport.write(REQUEST)


async def main() -> float:
    loop, port, count, seconds = asyncio.get_running_loop(), int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    for _ in range(count):
        await loop.create_connection(Client, "127.0.0.1", port)
    await asyncio.sleep(0.3)
    Client.count, began = 0, time.perf_counter()
    await asyncio.sleep(seconds)
    rate = Client.count / (time.perf_counter() - began)
    Client.over = True
    return rate


BODY = sys.stdin.buffer.read()
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    % (len(BODY), BODY)
)
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    print(runner.run(main()))
