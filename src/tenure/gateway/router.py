"""The ASGI app: one request in, one answer out, each through the policy's desk.  Raw, because frameworks cost ten times.

Promises: a stream is handed on chunk by chunk; a client that leaves frees its slot at once and cancels its request at the
server; errors have OpenAI's shape; no token is logged or passed on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp

from .answers import error_body, error_event, headers_of, models_body
from .journal import Journal
from .platform import Platform
from .policy import Action, Desk, Forward, Refuse, Sleep, Ticket, Wake, seen_of
from .upstream import GONE, Upstream, answer_headers, content_type, request_headers

__all__ = ["Gateway"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger("tenure.gateway")

MAX_BODY = 256 * 1024 * 1024
LARGE_JSON = 1024 * 1024  # a body beyond this is read by a thread, so that others go on
PING_AFTER_S, PING_S = 1.0, 5.0
TICK_S, REPORT_S, ALIVE_S = 0.25, 0.2, 5.0
STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]  # fmt: skip
_FORM_MODEL = re.compile(rb'name="model"\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{1,200})\r\n')
_OPEN = frozenset({"/health", "/healthz", "/favicon.ico", "/metrics"})


class _Refused(Exception):
    """An answer of ours."""

    def __init__(
        self, status: int, code: str, message: str, *, param: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(code)
        self.status, self.code, self.message, self.param, self.retry_after_s = (
            status,
            code,
            message,
            param,
            retry_after_s,
        )


@dataclass(slots=True)
class _Request:
    """One request on its way.  `begun`: our headers are out (a held stream has its pings)."""

    id: int
    scope: Scope
    send: Send
    method: str
    path: str
    arrived: float
    body: bytes = b""
    model: str = ""
    asked_as: str = ""
    who: str = ""
    stream: bool = False
    inference: bool = False
    begun: bool = False
    passed: bool = False  # something of the server's own answer is out: it is not sent again
    left: bool = False
    done: bool = False
    waited: bool = False
    held_s: float = 0.0
    first_byte_s: float | None = None
    run: str | None = None
    status: int = 0
    tail: bytes = b""
    facts: dict[str, Any] = field(default_factory=dict)


class Gateway:
    """`opened` in the event loop before the first request; `closed` after the last."""

    def __init__(self, *, desk: Desk, journal: Journal, token_needed: bool) -> None:
        self.desk, self.journal, self.token_needed = desk, journal, token_needed
        self.platform: Platform
        self.upstream: Upstream
        self._rows: dict[str, Mapping[str, Any]] = {}
        self._names: dict[str, str] = {}  # what a client may write -> the model
        self._adapters: set[str] = set()
        self._waiting: dict[int, asyncio.Future[Forward | Refuse]] = {}
        self._next = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._active: set[str] = set()
        self._first: set[str] = set()
        self._held_lines: list[dict[str, Any]] = []
        self._dirty, self._some_held = asyncio.Event(), asyncio.Event()
        self._own_names = {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}
        self._started = int(time.time())

    def opened(self, platform: Platform, upstream: Upstream) -> None:
        self.platform, self.upstream = platform, upstream
        self._keep(asyncio.get_running_loop().create_task(self._ticking()))
        self._keep(asyncio.get_running_loop().create_task(self._reporting()))

    async def closed(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.upstream.close()
        await self.platform.close()

    def heard(self, rows: list[dict[str, Any]]) -> None:
        """The platform's table of models."""
        self._rows = {row["name"]: row for row in rows}
        self._names = {name: row["name"] for row in rows for name in (*row["adapters"], *row["aliases"], row["name"])}
        self._adapters = {name for row in rows for name in row["adapters"]}
        self._do(self.desk.see([seen_of(row) for row in rows], time.monotonic()))

    # ------------------------------------------------------------------ one request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self._next += 1
        request = _Request(self._next, scope, send, scope["method"], scope["path"], time.monotonic())
        try:
            await self._answer(request, receive)
        except _Refused as refused:
            await self._refuse(request, refused)
        if request.inference:
            self._log(request)

    async def _answer(self, request: _Request, receive: Receive) -> None:
        headers = {name: value for name, value in request.scope["headers"]}
        self._same_site(headers)
        if request.path in _OPEN:
            await self._own(request)
            return
        request.who = await self._who(headers)
        if not self.platform.known.is_set():
            await asyncio.wait_for(self.platform.known.wait(), 10)
        if request.path == "/v1/models" or request.path.startswith("/v1/models/"):
            await self._models(request)
            return
        request.body = await _read(receive, headers)
        await self._identify(request, headers)
        gone = asyncio.ensure_future(_gone(receive))
        task = asyncio.current_task()
        assert task is not None

        def leave(_: object) -> None:
            if not request.done:
                request.left = True
                task.cancel()

        gone.add_done_callback(leave)
        try:
            await self._serve(request, headers)
        except asyncio.CancelledError:
            if not request.left:
                raise
            task.uncancel()
            request.status = request.status or 499
        finally:
            request.done = True
            gone.cancel()
            self._waiting.pop(request.id, None)
            self._do(self.desk.finished(request.id, time.monotonic()))
            self._spoke(request)

    async def _serve(self, request: _Request, headers: Mapping[bytes, bytes]) -> None:
        """Through the desk to the server; once more where it left without a byte."""
        patient = headers.get(b"x-tenure-wait", b"").strip() != b"0"
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Forward | Refuse] = loop.create_future()
        self._waiting[request.id] = future
        what = f"{request.method} {request.path}"
        ticket = Ticket(
            id=request.id, model=request.model, at=request.arrived, patient=patient, wakes=request.inference, what=what, who=request.who or "a client",
        )  # fmt: skip
        self._do(self.desk.arrive(ticket, time.monotonic()))
        if request.inference:
            self._spoke(request)
        while True:
            verdict = future.result() if future.done() else await self._held(request, future, what)
            if isinstance(verdict, Refuse):
                raise _Refused(verdict.status, verdict.code, verdict.message, retry_after_s=verdict.retry_after_s)
            request.run = verdict.run
            try:
                await self._forward(request, verdict.port)
                return
            except GONE as error:
                if request.passed:
                    await self._cut(request, error)
                    return
                future = loop.create_future()
                self._waiting[request.id] = future
                self._do(self.desk.again(request.id, time.monotonic(), why=str(error) or type(error).__name__))

    async def _held(self, request: _Request, future: asyncio.Future[Forward | Refuse], what: str) -> Forward | Refuse:
        """Wait for the desk's word.  A stream's client hears that it is not forgotten."""
        began = time.monotonic()
        self._held_lines.append({"model": request.model, "what": what, "who": request.who, "request": request.id, "state": str(self.desk.state(request.model))})  # fmt: skip
        request.waited = True
        self._dirty.set()
        self._some_held.set()
        pause = PING_AFTER_S
        while not future.done():
            await asyncio.wait({future}, timeout=pause if request.stream else None)
            if not future.done():
                await self._begin(request)
                await request.send({"type": "http.response.body", "body": b": ping\n\n", "more_body": True})
                pause = PING_S
        request.held_s += time.monotonic() - began
        return future.result()

    async def _begin(self, request: _Request) -> None:
        if not request.begun:
            request.begun, request.status = True, 200
            await request.send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})

    async def _forward(self, request: _Request, port: int) -> None:
        """Raises one of GONE; before `passed` is set nothing of the answer is out."""
        target = request.scope["raw_path"].decode("latin-1")
        if request.scope["query_string"]:
            target += "?" + request.scope["query_string"].decode("latin-1")
        answer = await self.upstream.send(
            request.method, port, target, request_headers(request.scope["headers"]), request.body
        )
        try:
            streamed = content_type(answer.headers) == "text/event-stream"
            if request.begun and not (streamed and answer.status < 300):
                await self._into_stream(request, answer)
                return
            size = answer.content_length
            if request.scope["http_version"] == "1.0" or (size is not None and size <= 65536 and not streamed):
                await self._whole(request, answer)
                return
            await self._chunks(request, answer, streamed=streamed)
        finally:
            answer.close() if not answer.content.at_eof() else answer.release()

    async def _whole(self, request: _Request, answer: aiohttp.ClientResponse) -> None:
        """A short answer, or any to a client that knows no chunks: read before a byte of it is sent."""
        body = await answer.read()
        self._first_byte(request, answer.status)
        request.tail = body[-4096:]
        headers = [pair for pair in answer_headers(answer.raw_headers) if pair[0] != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await request.send(
            {"type": "http.response.start", "status": answer.status, "headers": self._marked(request, headers)}
        )
        request.done = True
        await request.send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else body})

    async def _chunks(self, request: _Request, answer: aiohttp.ClientResponse, *, streamed: bool) -> None:
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
                {"type": "http.response.start", "status": answer.status, "headers": self._marked(request, headers)}
            )
        while chunk := await answer.content.readany():
            if request.first_byte_s is None:
                self._first_byte(request, answer.status)
            request.tail = chunk[-4096:] if len(chunk) >= 1024 else (request.tail + chunk)[-4096:]
            await request.send({"type": "http.response.body", "body": chunk, "more_body": True})
        if request.first_byte_s is None:
            self._first_byte(request, answer.status)
        request.done = True
        await request.send({"type": "http.response.body", "body": b""})

    async def _into_stream(self, request: _Request, answer: aiohttp.ClientResponse) -> None:
        """Our 200 and its pings are out already: an error becomes an event, a plain answer one event and the end."""
        body = await answer.read()
        self._first_byte(request, answer.status)
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

    def _first_byte(self, request: _Request, status: int) -> None:
        request.first_byte_s = time.monotonic() - request.arrived
        request.status = status
        if request.inference and request.model not in self._first:
            self._first.add(request.model)
            self._spoke(request)

    def _marked(self, request: _Request, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        return [*headers, (b"x-tenure-run", request.run.encode())] if request.run else headers

    async def _cut(self, request: _Request, error: BaseException) -> None:
        """The server left in the middle of its answer: the client is told, and never left to wait."""
        text = f"{request.model} left in the middle of its answer ({error or type(error).__name__}); run {request.run}"
        log.warning("request %d: %s", request.id, text)
        request.done = True
        request.facts["cut"] = True
        if request.stream:
            await request.send({"type": "http.response.body", "body": error_event("upstream_failed", text)})
        else:
            request.scope["tenure.abort"]()

    async def _refuse(self, request: _Request, refused: _Refused) -> None:
        request.status = refused.status
        request.facts["code"] = refused.code
        body = error_body(refused.status, refused.code, refused.message, param=refused.param)
        request.done = True
        if request.begun:
            await request.send({"type": "http.response.body", "body": b"data: " + body + b"\n\n"})
            return
        headers = headers_of(body, retry_after_s=refused.retry_after_s)
        if refused.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await request.send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await request.send({"type": "http.response.body", "body": body})

    # ------------------------------------------------------------------ who, and for which model

    def _same_site(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse what a browser sends for somebody else's page, or under a name that is not this machine's."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = urlsplit(f"//{host}").hostname or ""
        if name and name not in self._own_names:
            try:
                ip_address(name)
            except ValueError:
                raise _Refused(403, "foreign_host", f"{host!r} is no name of this machine; use its address, or localhost") from None  # fmt: skip
        origin = headers.get(b"origin")
        if origin is not None and urlsplit(origin.decode("latin-1")).netloc.lower() != host:
            raise _Refused(403, "foreign_origin", "pages of another site may not use this gateway")
        if headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site"):
            raise _Refused(403, "foreign_origin", "another site may not use this gateway")

    async def _who(self, headers: Mapping[bytes, bytes]) -> str:
        """The name of the token; empty where none is needed and none is known.  Raises 401."""
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        presented = token.strip() if scheme.lower() == "bearer" else headers.get(b"x-api-key", b"").decode("latin-1")
        if not self.token_needed:
            return ""
        if not presented:
            raise _Refused(401, "missing_token", "this gateway needs a token: `Authorization: Bearer …` (`tenure token create NAME`)")  # fmt: skip
        try:
            name = await self.platform.who(presented)
        except (aiohttp.ClientError, OSError, TimeoutError):
            raise _Refused(503, "platform_away", "the platform does not answer; try again", retry_after_s=2) from None
        if name is None:
            raise _Refused(401, "invalid_api_key", "this token is not one of this platform's; it may have been revoked")
        return name

    async def _identify(self, request: _Request, headers: Mapping[bytes, bytes]) -> None:
        """Which model, whether it is inference; an alias is rewritten.  Raises 400 or 404."""
        kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        name: Any = headers.get(b"x-tenure-model", b"").decode("latin-1") or None
        fields: dict[str, Any] | None = None
        if kind == "multipart/form-data":
            match = _FORM_MODEL.search(request.body)
            name = match[1].decode("utf-8", "replace") if match else name
        elif request.body and request.body.lstrip()[:1] == b"{":
            try:
                large = len(request.body) > LARGE_JSON
                parsed = await asyncio.to_thread(json.loads, request.body) if large else json.loads(request.body)
            except ValueError as error:
                raise _Refused(400, "invalid_json", f"the body is no JSON: {error}") from None
            fields = parsed
            name = parsed.get("model") or name
            request.stream = parsed.get("stream") is True
        if name is None and len(self._rows) == 1:
            name = next(iter(self._rows))
        if not isinstance(name, str):
            raise _Refused(400, "missing_model", "the request names no model; write `model` in its body", param="model")
        model = self._names.get(name)
        if model is None:
            known = ", ".join(sorted(self._names)) or "none"
            raise _Refused(404, "model_not_found", f"there is no model {name!r}; there are: {known}", param="model")
        request.model, request.asked_as = model, name
        request.inference = request.path in self._rows[model]["inference_paths"]
        if name != model and name not in self._adapters and fields is not None:
            fields["model"] = model
            request.body = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode(
                "utf-8", "surrogatepass"
            )

    # ------------------------------------------------------------------ what the gateway answers itself

    async def _own(self, request: _Request) -> None:
        if request.path == "/favicon.ico":
            raise _Refused(404, "not_found", "there is no icon")
        body = json.dumps({"status": "ok"}).encode()
        headers = headers_of(body)
        if request.path == "/metrics":
            body = self._metrics()
            headers = [(b"content-type", b"text/plain; version=0.0.4"), (b"content-length", str(len(body)).encode())]
        await request.send({"type": "http.response.start", "status": 200, "headers": headers})
        await request.send({"type": "http.response.body", "body": body})

    async def _models(self, request: _Request) -> None:
        """The list never wakes anybody."""
        if request.method not in ("GET", "HEAD"):
            raise _Refused(405, "method_not_allowed", f"{request.path} is there to be read")
        listed = models_body(self._rows.values(), self._started)
        answer: Any = {"object": "list", "data": listed}
        wanted = unquote(request.path.removeprefix("/v1/models").removeprefix("/"))
        if wanted:
            name = wanted if wanted in self._adapters else self._names.get(wanted)
            answer = next((one for one in listed if one["id"] == name), None)
            if answer is None:
                raise _Refused(404, "model_not_found", f"there is no model {wanted!r}", param="model")
        body = json.dumps(answer).encode()
        await request.send({"type": "http.response.start", "status": 200, "headers": headers_of(body)})
        await request.send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else body})

    def _metrics(self) -> bytes:
        lines = [
            "# HELP tenure_gateway_requests_in_flight Requests that a model is answering",
            "# TYPE tenure_gateway_requests_in_flight gauge",
            *(f'tenure_gateway_requests_in_flight{{model="{name}"}} {self.desk.flying(name)}' for name in self._rows),
            "# HELP tenure_gateway_requests_held Requests that wait for a model",
            "# TYPE tenure_gateway_requests_held gauge",
            *(f'tenure_gateway_requests_held{{model="{name}"}} {self.desk.waiting(name)}' for name in self._rows),
        ]
        return ("\n".join(lines) + "\n").encode()

    # ------------------------------------------------------------------ carrying out, and telling

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Forward(ticket=id) | Refuse(ticket=id):
                    future = self._waiting.pop(id, None)
                    if future is not None and not future.done():
                        future.set_result(action)
                case Wake(model=model, cause=cause, by=by):
                    self._first.discard(model)
                    self._keep(asyncio.ensure_future(self.platform.wake(model, cause=cause, by=by)))
                case Sleep(model=model, cause=cause):
                    self._keep(asyncio.ensure_future(self.platform.sleep(model, cause=cause)))

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _spoke(self, request: _Request) -> None:
        """The platform's idle clock hears of inference when it comes and when it ends."""
        if request.inference and request.model:
            self._active.add(request.model)
            self._dirty.set()

    async def _ticking(self) -> None:
        while True:
            if not self.desk.held:
                self._some_held.clear()
                await self._some_held.wait()
            await asyncio.sleep(TICK_S)
            self._do(self.desk.tick(time.monotonic()))

    async def _reporting(self) -> None:
        """At once for the first word, then at most five times a second; a sign of life while anything is going on."""
        while True:
            busy = any(self.desk.flying(name) or self.desk.waiting(name) for name in self._rows)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._dirty.wait(), ALIVE_S if busy else None)
            self._dirty.clear()
            active, self._active = self._active, set()
            held, self._held_lines = self._held_lines, []
            models = {
                name: {
                    "in_flight": self.desk.flying(name, inference=True),
                    "held": self.desk.waiting(name),
                    "active": name in active,
                    "first_token": name in self._first,
                }
                for name in self._rows
            }
            await self.platform.report({"models": models, "held": held})
            await asyncio.sleep(REPORT_S)

    def _log(self, request: _Request) -> None:
        usage = {m[0].decode(): int(m[1]) for m in re.findall(rb'"(prompt_tokens|completion_tokens)"\s*:\s*(\d+)', request.tail)}  # fmt: skip
        self.journal.write(
            model=request.model,
            adapter=request.asked_as if request.asked_as in self._adapters else None,
            who=request.who or None,
            path=request.path,
            status=request.status,
            left=request.left,
            held_s=round(request.held_s, 4),
            held=request.waited,
            streamed=request.stream,
            first_byte_s=None if request.first_byte_s is None else round(request.first_byte_s, 6),
            seconds=round(time.monotonic() - request.arrived, 6),
            run=request.run,
            **usage,
            **request.facts,
        )


async def _read(receive: Receive, headers: Mapping[bytes, bytes]) -> bytes:
    """The whole body, which has to be known to know the model.  Raises 413, and CancelledError where the client left."""
    too_large = _Refused(413, "body_too_large", f"a body of more than {MAX_BODY >> 20} MiB is not taken")
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and int(length) > MAX_BODY:
        raise too_large
    pieces, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refused(499, "client_left", "the client left before its request was whole")
        piece = message.get("body", b"")
        size += len(piece)
        if size > MAX_BODY:
            raise too_large
        if piece:
            pieces.append(piece)
        if not message.get("more_body"):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
