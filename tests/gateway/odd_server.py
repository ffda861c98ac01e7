"""A model server that does what servers do on their odd days: half an event and no more, a flood, an echo of what it was asked.

`python odd_server.py PORT SEEN`; what it does stands in the field `do` of the body.  A line of SEEN tells how each ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from pathlib import Path

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
HALF = b'data: {"choices": [{"delta": {"content": "hal'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def asked(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    return method, path, headers, await reader.readexactly(int(headers.get("content-length", 0)))


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            method, path, headers, body = await asked(reader)
            fields = json.loads(body) if body[:1] == b"{" else {}
            what = fields.get("do", "echo")
            sent = 0
            try:
                if what == "half":
                    writer.write(SSE + chunk(HALF))
                    await reader.read(1)  # and then nothing, until whoever asked has left
                    raise ConnectionResetError
                if what == "silent":
                    await reader.read(1)
                    raise ConnectionResetError
                if what == "flood":
                    writer.write(SSE)
                    event = b"data: " + b"x" * 65528 + b"\n\n"
                    for _ in range(int(fields["mb"]) * 16):
                        writer.write(chunk(event))
                        sent += len(event)
                        await writer.drain()
                    writer.write(chunk(b"data: [DONE]\n\n") + chunk(b""))
                elif what == "words":
                    writer.write(SSE)
                    for number in range(3):
                        writer.write(chunk(b"data: word%d\n\n" % number))
                        await asyncio.sleep(0.1)
                        while "heard" in fields and not Path(fields["heard"]).exists():
                            await asyncio.sleep(0.02)
                    writer.write(chunk(b"data: [DONE]\n\n") + chunk(b""))
                elif method == "HEAD":
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 12345\r\n\r\n")
                else:
                    said = {"method": method, "path": path, "headers": headers, "size": len(body), "sha256": hashlib.sha256(body).hexdigest()}  # fmt: skip
                    said |= {
                        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
                        "object": "odd",
                        "text": "",
                        "id": "1",
                    }
                    text = json.dumps(said | fields.get("answer", {})).encode()
                    status = int(fields.get("status", 200))
                    writer.write(
                        b"HTTP/1.1 %d Odd\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                        % (status, len(text), text)
                    )
                await writer.drain()
            except (ConnectionError, asyncio.IncompleteReadError):
                if what != "echo":
                    with Path(sys.argv[2]).open("a") as file:
                        file.write(json.dumps({"do": what, "left": time.time(), "sent": sent}) + "\n")
                raise
    except (ConnectionError, asyncio.IncompleteReadError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), limit=64 * 1024 * 1024)
    await server.serve_forever()


asyncio.run(main())
