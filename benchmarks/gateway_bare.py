"""A peer: aiohttp on both sides on uvloop, which passes everything on and knows nothing."""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import uvloop
from aiohttp import web


async def main() -> None:
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)

    async def forward(request: web.Request) -> web.StreamResponse:
        url = f"http://127.0.0.1:{sys.argv[2]}{request.path_qs}"
        async with session.request(
            request.method, url, data=await request.read(), headers={"Content-Type": "application/json"}
        ) as answer:
            if answer.content_length is not None:
                return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)
            out = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]})
            await out.prepare(request)
            while chunk := await answer.content.readany():
                await out.write(chunk)
            return out

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(sys.argv[1])).start()
    await asyncio.Event().wait()


with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
