"""A model's answer on its way to the client: chunk by chunk, with nothing read ahead of a slow reader.

Promises: before `request.passed` is set nothing of the answer is out, so that it may be asked for once more; where our own
headers are out already (pings), an error becomes an event and a plain answer one event and the end.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress

import aiohttp

from .answers import STREAM_HEADERS, error_body, error_event
from .request import Request
from .upstream import Upstream, answer_headers, content_type, request_headers

__all__ = ["Passing"]

log = logging.getLogger("tenure.gateway")

SHORT = 64 * 1024  # an answer of a known length up to this is read before a byte of it is sent


class Passing:
    """`first_byte(request)` is called when the first byte of a model's answer is here, and `request.status` is set."""

    def __init__(self, upstream: Upstream, first_byte: Callable[[Request], None]) -> None:
        self._upstream, self._told = upstream, first_byte

    async def forward(self, request: Request, port: int) -> None:
        """Raises one of GONE."""
        target = request.scope["raw_path"].decode("latin-1")
        if request.scope["query_string"]:
            target += "?" + request.scope["query_string"].decode("latin-1")
        headers = request_headers(request.scope["headers"])
        answer = await self._upstream.send(request.method, port, target, headers, request.body)
        try:
            streamed = content_type(answer.headers) == "text/event-stream"
            if request.begun and not (streamed and answer.status < 300):
                await self._into_stream(request, answer)
                return
            size = answer.content_length
            if request.scope["http_version"] == "1.0" or (size is not None and size <= SHORT and not streamed):
                await self._whole(request, answer)
                return
            await self._chunks(request, answer, streamed=streamed)
        finally:
            answer.close() if not answer.content.at_eof() else answer.release()

    async def cut(self, request: Request, error: BaseException) -> None:
        """The server left in the middle of its answer: the client is told, and never left to wait."""
        text = f"{request.model} left in the middle of its answer ({error or type(error).__name__}); run {request.run}"
        log.warning("request %d: %s", request.id, text)
        request.done = True
        request.facts["cut"] = True
        if request.stream:
            await request.send({"type": "http.response.body", "body": error_event("upstream_failed", text)})
        else:
            request.scope["tenure.abort"]()

    async def _whole(self, request: Request, answer: aiohttp.ClientResponse) -> None:
        """A short answer, or any to a client that knows no chunks: read before a byte of it is sent."""
        body = await answer.read()
        self._first_byte(request, answer.status)
        request.saw(body)
        headers = [pair for pair in answer_headers(answer.raw_headers) if pair[0] != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await request.send(
            {"type": "http.response.start", "status": answer.status, "headers": _marked(request, headers)}
        )
        request.done = True
        await request.send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else body})

    async def _chunks(self, request: Request, answer: aiohttp.ClientResponse, *, streamed: bool) -> None:
        request.passed = True
        if not request.begun:
            headers = answer_headers(answer.raw_headers)
            if streamed:
                headers = [
                    h for h in headers if h[0] not in (b"cache-control", b"x-accel-buffering", b"content-length")
                ]
                headers += STREAM_HEADERS[1:]
            request.begun = True
            request.status = answer.status
            await request.send(
                {"type": "http.response.start", "status": answer.status, "headers": _marked(request, headers)}
            )
        while chunk := await answer.content.readany():
            if request.first_byte_s is None:
                self._first_byte(request, answer.status)
            request.saw(chunk)
            await request.send({"type": "http.response.body", "body": chunk, "more_body": True})
        if request.first_byte_s is None:
            self._first_byte(request, answer.status)
        request.done = True
        await request.send({"type": "http.response.body", "body": b""})

    async def _into_stream(self, request: Request, answer: aiohttp.ClientResponse) -> None:
        body = await answer.read()
        self._first_byte(request, answer.status)
        request.saw(body)
        text = body.decode("utf-8", "replace").strip()
        if answer.status >= 300:
            with suppress(ValueError):
                text = json.dumps(json.loads(text))
            try:
                inside = "error" in json.loads(text)
            except (ValueError, TypeError):
                inside = False
            if not inside:
                text = error_body(answer.status, "upstream_error", f"the model answered {answer.status}").decode()
        data = f"data: {text}\n\ndata: [DONE]\n\n" if answer.status < 300 else f"data: {text}\n\n"
        request.done = True
        await request.send({"type": "http.response.body", "body": data.encode()})

    def _first_byte(self, request: Request, status: int) -> None:
        request.first_byte(status)
        self._told(request)


def _marked(request: Request, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """With the run that answers, and the token's limits in place of any that the server has."""
    if request.limits:
        headers = [pair for pair in headers if not pair[0].startswith(b"x-ratelimit-")] + request.limits
    return [*headers, (b"x-tenure-run", request.run.encode())] if request.run else headers
