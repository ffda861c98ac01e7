"""The ASGI app: one request in, one answer out, each through the policy's desk.  Raw, because frameworks cost ten times.

Promises: a stream is handed on chunk by chunk; a client that leaves frees its slot at once and cancels its request at the
server; errors have OpenAI's shape; no token is logged or passed on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from .answers import STREAM_HEADERS, Refused, away, error_body, headers_of
from .journal import Journal
from .metrics import Metrics
from .naming import Names
from .passing import Passing
from .platform import Platform
from .policy import Desk
from .protocol import ARRIVED, abort, unwatch, watch
from .refusals import RefusalLog
from .reporting import Report
from .request import Receive, Request, Scope, Send, read_body
from .spans import span_of
from .upstream import Absent, Left, Upstream
from .uses import Uses
from .who import Callers
from .words import Action, Forward, Refuse, Sleep, Ticket, Wake, seen_of

__all__ = ["Gateway"]

log = logging.getLogger("tenure.gateway")

PING_AFTER_S, PING_S = 1.0, 5.0
TICK_S = 0.25
KNOWN_S = 10.0  # a gateway that has just started waits so long for the first table of models
FAULT_S = 1.0  # after a fault of ours, until it goes on
_OPEN = frozenset({"/health", "/healthz", "/favicon.ico", "/metrics"})


class Gateway:
    """`opened` in the event loop before the first request; `closed` after the last."""

    def __init__(self, *, desk: Desk, journal: Journal, uses: Uses, token_needed: bool, silence_s: float) -> None:
        self._silence_s = silence_s
        self.desk, self.journal, self.uses, self.token_needed = desk, journal, uses, token_needed
        self.names = Names()
        self.platform: Platform
        self.upstream: Upstream
        self.callers: Callers
        self._passing: Passing
        self._report, self._metrics, self._refusals = Report(desk), Metrics(desk), RefusalLog()
        self._open: dict[int, Request] = {}
        self._waiting: dict[int, asyncio.Future[Forward | Refuse]] = {}
        self._next = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._restless = asyncio.Event()

    def opened(self, platform: Platform, upstream: Upstream) -> None:
        self.platform, self.upstream = platform, upstream
        self.callers = Callers(platform.who, token_needed=self.token_needed, names=self.names, uses=self.uses)
        self._passing = Passing(upstream, self._report.first_byte, silence_s=self._silence_s)
        loop = asyncio.get_running_loop()
        for work in (self._ticking, partial(self._report.run, platform, self.names), self.uses.run):
            self._keep(loop.create_task(_for_ever(work)))
        self.journal.tidy()

    async def closed(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._refusals.close()
        self.uses.save()
        self.journal.close()
        await self.upstream.close()
        await self.platform.close()

    def heard(self, rows: list[dict[str, Any]]) -> None:
        """The platform's table of models."""
        self.names.heard(rows)
        self._do(self.desk.see([seen_of(row) for row in rows], time.monotonic()))
        self._report.heard(rows)

    # ------------------------------------------------------------------ one request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self._next += 1
        request = Request(self._next, scope, send, scope["method"], scope["path"], scope[ARRIVED])
        try:
            await self._answer(request, receive)
        except Refused as refused:
            await self._refuse(request, refused)
        except Exception:
            log.exception("request %d: %s %s", request.id, request.method, request.path)
            if not request.done:
                await self._refuse(request, Refused(500, "internal_error", "a bug of tenure's; the gateway's log has the story"))  # fmt: skip
        finally:
            self.callers.used(request)
        if request.inference:
            self._metrics.over(request, now=time.monotonic())
            self.journal.write(**request.line(), span=request.ended())

    async def _answer(self, request: Request, receive: Receive) -> None:
        headers = {name: value for name, value in request.scope["headers"]}
        self.callers.same_site(headers)
        if headers.get(b"upgrade", b"").lower() == b"websocket":
            raise Refused(
                501, "no_websockets", "this gateway speaks HTTP alone; ask with a POST, and `stream` for events"
            )
        if request.path in _OPEN and not (request.path == "/metrics" and self.token_needed):
            await self._own(request)
            return
        await self.callers.known(request, headers)
        if request.path == "/metrics":
            await self._own(request)
            return
        if not self.platform.known.is_set():
            try:
                await asyncio.wait_for(self.platform.known.wait(), KNOWN_S)
            except TimeoutError:
                raise away() from None
        if request.path == "/v1/models" or request.path.startswith("/v1/models/"):
            await self._models(request)
            return
        request.body = await read_body(receive, headers)
        request.span = span_of(headers)
        await self.names.identify(request, headers)
        self.callers.may(request)
        await self._watched(request, patient=headers.get(b"x-tenure-wait", b"").strip() != b"0")

    async def _watched(self, request: Request, *, patient: bool) -> None:
        """Serve it for as long as its client is there."""
        task = asyncio.current_task()
        assert task is not None

        def leave() -> None:
            if not request.done:
                request.left = True
                task.cancel()

        watch(request.scope, leave)
        self._open[request.id] = request
        try:
            await self._serve(request, patient=patient)
        except asyncio.CancelledError:
            task.uncancel()
            if not request.left:  # it is this gateway that ends
                raise Refused(503, "going_down", "the platform is going down", retry_after_s=10) from None
            request.status = 499
        finally:
            request.done = True
            del self._open[request.id]
            unwatch(request.scope)
            self._waiting.pop(request.id, None)
            self._do(self.desk.finished(request.id, time.monotonic()))
            self._report.spoke(request)

    async def _serve(self, request: Request, *, patient: bool) -> None:
        """Through the desk to the server; once more where it left without a byte."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Forward | Refuse] = loop.create_future()
        self._waiting[request.id] = future
        ticket = Ticket(
            id=request.id, model=request.model, at=request.arrived, patient=patient, wakes=request.inference, what=request.what, who=request.who or "a client",
        )  # fmt: skip
        self._do(self.desk.arrive(ticket, time.monotonic()))
        self._report.spoke(request)
        while True:
            verdict = future.result() if future.done() else await self._held(request, future)
            if isinstance(verdict, Refuse):
                raise Refused(verdict.status, verdict.code, verdict.message, retry_after_s=verdict.retry_after_s)
            if request.waited:
                self._report.spoke(request)  # what was held is in flight now: its model is not idle
            request.run = verdict.run
            request.answered_by(self.names.rows.get(request.model, {}).get("traceparent"))
            try:
                await self._passing.forward(request, verdict.port)
                return
            except Left as error:
                if request.passed:
                    await self._passing.cut(request, error)
                    return
                future = loop.create_future()
                self._waiting[request.id] = future
                self._do(
                    self.desk.again(
                        request.id,
                        time.monotonic(),
                        why=str(error) or type(error).__name__,
                        absent=isinstance(error, Absent),
                    )
                )

    async def _held(self, request: Request, future: asyncio.Future[Forward | Refuse]) -> Forward | Refuse:
        """Wait for the desk's word.  A stream's client hears that it is not forgotten."""
        began = time.monotonic()
        self._report.held(request)
        request.waited = True
        pause = PING_AFTER_S
        try:
            while not future.done():
                await asyncio.wait({future}, timeout=pause if request.stream else None)
                if not future.done():
                    if not request.begun:
                        await request.start(200, [*STREAM_HEADERS, *request.limits], events=True)
                    await request.more(b": ping\n\n")
                    pause = PING_S
        finally:  # also where the client leaves meanwhile
            request.held_s += time.monotonic() - began
        return future.result()

    async def _refuse(self, request: Request, refused: Refused) -> None:
        request.facts["code"] = refused.code
        self._metrics.refused(refused.status, refused.code)
        self._refusals.saw(request.refusal(refused.status, refused.code))
        body = error_body(refused.status, refused.code, refused.message, param=refused.param)
        if request.begun and not request.events:
            request.done = True
            abort(request.scope)
            return
        if request.begun:
            request.status = refused.status
            await request.end(b"data: " + body + b"\n\n")
            return
        headers = headers_of(body, retry_after_s=refused.retry_after_s, again=refused.again) + request.limits
        if refused.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if refused.status in (413, 501):
            headers.append((b"connection", b"close"))  # what else comes on it is not read
        await request.start(refused.status, headers)
        await request.end(body)

    # ------------------------------------------------------------------ what the gateway answers itself

    async def _own(self, request: Request) -> None:
        if request.path == "/favicon.ico":
            raise Refused(404, "not_found", "there is no icon")
        body = json.dumps({"status": "ok"}).encode()
        headers = headers_of(body)
        if request.path == "/metrics":
            body = self._metrics.text(self.names)
            headers = [(b"content-type", b"text/plain; version=0.0.4"), (b"content-length", str(len(body)).encode())]
        await request.start(200, headers)
        await request.end(body)

    async def _models(self, request: Request) -> None:
        """The list never wakes anybody."""
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, "method_not_allowed", f"{request.path} is there to be read")
        wanted = request.path.removeprefix("/v1/models").removeprefix("/")
        answer = (
            self.names.one(wanted, request.rights)
            if wanted
            else {"object": "list", "data": self.names.listed(request.rights)}
        )
        body = json.dumps(answer).encode()
        await request.start(200, headers_of(body))
        await request.end(body)

    # ------------------------------------------------------------------ carrying out

    def _do(self, actions: list[Action]) -> None:
        if self.desk.restless:
            self._restless.set()
        for action in actions:
            match action:
                case Forward(ticket=id) | Refuse(ticket=id):
                    future = self._waiting.pop(id, None)
                    if future is not None and not future.done():
                        future.set_result(action)
                case Wake(model=model, cause=cause, by=by, ticket=ticket):
                    if ticket in self._open:
                        self._open[ticket].woke = True
                    self._keep(asyncio.ensure_future(self.platform.wake(model, cause=cause, by=by)))
                case Sleep(model=model, cause=cause):
                    self._keep(asyncio.ensure_future(self.platform.sleep(model, cause=cause)))

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ticking(self) -> None:
        while True:
            if not self.desk.restless:
                self._restless.clear()
                await self._restless.wait()
            await asyncio.sleep(TICK_S)
            self._do(self.desk.tick(time.monotonic()))


async def _for_ever(work: Callable[[], Awaitable[None]]) -> None:
    """A fault of one turn does not end the turning: those who are held would never hear of it."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("a part of the gateway failed; it goes on")
            await asyncio.sleep(FAULT_S)
