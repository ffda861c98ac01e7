"""A model's answer on its way to the client: chunk by chunk, with nothing read ahead of a slow reader.

Promises: before `request.passed` is set nothing of the answer is out, so that it may be asked for once more; where our own
headers are out already (pings), an error becomes an event and a plain answer one event and the end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from .answers import STREAM_HEADERS, error_body, error_event
from .protocol import abort
from .request import Request
from .upstream import Answer, Left, Upstream, answer_headers, request_headers

__all__ = ["Passing"]

log = logging.getLogger("tenure.gateway")

SHORT = 64 * 1024  # an answer of a known length up to this is read before a byte of it is sent


class Passing:
    """`first_byte(request)` is called when the first byte of a model's answer is here, and `request.status` is set.

    A server that has begun its answer and then says nothing for `silence_s` has left in the middle of it.
    """

    def __init__(self, upstream: Upstream, first_byte: Callable[[Request], None], *, silence_s: float) -> None:
        self._upstream, self._told, self._silence_s = upstream, first_byte, silence_s

    async def forward(self, request: Request, port: int) -> None:
        """Raises Left."""
        target: bytes = request.scope["raw_path"]
        if request.scope["query_string"]:
            target += b"?" + request.scope["query_string"]
        headers = request_headers(request.scope["headers"])
        if request.span is not None:
            headers.append((b"traceparent", request.span.header.encode()))
        request.sent_at, request.port = time.monotonic(), port
        answer = await self._upstream.send(request.method, port, target, headers, request.body)
        try:
            streamed = answer.content_type == "text/event-stream"
            if request.begun and not (streamed and answer.status < 300):
                await self._into_stream(request, answer)
                return
            size = answer.content_length
            if request.method == "HEAD" or (size is not None and size <= SHORT and not streamed):
                await self._whole(request, answer)
                return
            await self._chunks(request, answer, streamed=streamed)
        finally:
            answer.close()

    async def cut(self, request: Request, error: BaseException) -> None:
        """The server left in the middle of its answer: the client is told, and never left to wait."""
        text = f"{request.model} left in the middle of its answer ({error or type(error).__name__}); run {request.run}"
        log.warning("request %d: %s", request.id, text)
        request.facts["cut"] = True
        if request.events:
            await request.end(error_event("upstream_failed", text))
        else:
            request.done = True
            abort(request.scope)

    async def _whole(self, request: Request, answer: Answer) -> None:
        """A short answer: read before a byte of it is sent, looked at when it is out.  To HEAD its length, and no body."""
        body = await answer.read()
        request.first_byte(answer.status)
        headers = _marked(request, answer_headers(answer.headers))
        try:
            if request.method == "HEAD":
                await request.start(answer.status, headers)
                await request.end()
            else:
                headers = [pair for pair in headers if pair[0] != b"content-length"]
                headers.append((b"content-length", b"%d" % len(body)))
                await request.whole(answer.status, headers, body)
        finally:  # it has cost its tokens, whether the client has waited for them or not
            request.saw(body)
            self._told(request)

    async def _chunks(self, request: Request, answer: Answer, *, streamed: bool) -> None:
        request.passed = True
        if not request.begun:
            headers = answer_headers(answer.headers)
            if streamed:
                headers = [
                    h for h in headers if h[0] not in (b"cache-control", b"x-accel-buffering", b"content-length")
                ]
                headers += STREAM_HEADERS[1:]
            await request.start(answer.status, _marked(request, headers), events=streamed)
        silence = _Silence(self._silence_s, answer)
        try:
            while chunk := await silence.broken(answer.chunk()):
                if request.first_byte_s is None:
                    self._first_byte(request, answer.status)
                request.saw(chunk)
                await request.more(chunk)
        finally:
            silence.end()
        if request.first_byte_s is None:
            self._first_byte(request, answer.status)
        await request.end()

    async def _into_stream(self, request: Request, answer: Answer) -> None:
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
        await request.end(data.encode())

    def _first_byte(self, request: Request, status: int) -> None:
        request.first_byte(status)
        self._told(request)


class _Silence:
    """One timer for a whole stream, which looks when the last wait began: chunks cost nothing more."""

    __slots__ = ("_answer", "_loop", "_over", "_seconds", "_since", "_timer")

    def __init__(self, seconds: float, answer: Answer) -> None:
        self._seconds, self._answer = seconds, answer
        self._since: float | None = None  # None: the client is waited for, not the server
        self._over = False
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(seconds, self._look)

    async def broken(self, chunk: Awaitable[bytes]) -> bytes:
        """The next chunk.  Raises Left after `seconds` without one."""
        self._since = self._loop.time()
        try:
            found = await chunk
        except Left:
            if self._over:
                raise self._silent() from None
            raise
        if self._over:
            raise self._silent()
        self._since = None
        return found

    def end(self) -> None:
        self._timer.cancel()

    def _silent(self) -> Left:
        return Left(f"it said nothing for {self._seconds:g} s")

    def _look(self) -> None:
        now = self._loop.time()
        since = now if self._since is None else self._since
        if now - since >= self._seconds:
            self._over = True
            self._answer.close()
        else:
            self._timer = self._loop.call_later(since + self._seconds - now, self._look)


def _marked(request: Request, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """With the run that answers, and the token's limits in place of any that the server has."""
    if request.limits:
        headers = [pair for pair in headers if not pair[0].startswith(b"x-ratelimit-")] + request.limits
    return [*headers, (b"x-tenure-run", request.run.encode())] if request.run else headers
