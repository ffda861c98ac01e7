"""A model server that costs next to nothing: asyncio alone, one fixed answer, and streams whose chunks carry their time."""

from __future__ import annotations

import asyncio
import sys
import time

ANSWER = b'{"id":"c","object":"chat.completion","created":1,"model":"small","choices":[{"index":0,"message":{"role":"assistant","content":"Paris"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}'
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Server(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.rest = transport, b""

    def data_received(self, data: bytes) -> None:
        self.rest += data
        while b"\r\n\r\n" in self.rest:
            head, after = self.rest.split(b"\r\n\r\n", 1)
            size = next(
                (int(x.partition(b":")[2]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")), 0
            )
            if len(after) < size:
                return
            body, self.rest = after[:size], after[size:]
            if b'"stream":true' in body:
                self.task = asyncio.ensure_future(self.stream())
            else:
                self.transport.write(PLAIN)

    async def stream(self) -> None:
        self.transport.write(SSE)
        for _ in range(int(sys.argv[2])):
            await asyncio.sleep(float(sys.argv[3]))
            event = b'data: {"choices":[{"delta":{"content":"word "}}],"sent":%.6f}\n\n' % time.monotonic()
            self.transport.write(b"%x\r\n%b\r\n" % (len(event), event))
        event = b"data: [DONE]\n\n"
        self.transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event))


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", int(sys.argv[1]), backlog=512)
    await server.serve_forever()


asyncio.run(main())
