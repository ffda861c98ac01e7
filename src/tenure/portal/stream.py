"""What is asynchronous here: the diary as Server-Sent Events, and waiting for a job's end.

One reader follows the diary for everybody: it hears of a commit, reads what is new once, and hands it to the
listeners.  A listener that cannot keep up loses its place in memory and reads on from the ledger by event id, so a
slow client costs a bounded queue and never an event.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from tenure.control import views
from tenure.control.app import Platform

__all__ = ["EventStream", "Listener", "News", "follow", "wait_for"]

log = logging.getLogger("tenure.portal")

HEARTBEAT_S = 15.0
STALL_S = 30.0  # a client that takes nothing for this long is dropped; it comes back with Last-Event-ID
BACKLOG = 1000
BATCH = 500
COALESCE_S = 0.005  # one read serves the commits of this long

EventRow = Mapping[str, Any]


def concerns(event: EventRow, job: str | None) -> bool:
    """Whether an event is of `job`, or of a task of the array `job`."""
    if job is None:
        return True
    of = event.get("job_id")
    return of == job or (of is not None and str(of).startswith(job + "_"))


class Listener:
    """A bounded place in the stream.  `lost` says that it overflowed; the reader then goes back to the ledger."""

    def __init__(self, job: str | None) -> None:
        self.job = job
        self.queue: asyncio.Queue[EventRow | None] = asyncio.Queue(BACKLOG)
        self.lost = False

    def offer(self, event: EventRow) -> None:
        if not concerns(event, self.job) or self.lost:
            return
        try:
            self.queue.put_nowait(event)
        except asyncio.QueueFull:
            self.lost = True

    def refresh(self) -> None:
        """Forget what is queued; what follows is complete from here on."""
        while not self.queue.empty():
            self.queue.get_nowait()
        self.lost = False


class News:
    """The one reader.  `open` and `close` belong to the event loop's thread."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.closing = False
        self._listeners: set[Listener] = set()
        self._rung = asyncio.Event()
        self._ringing = False
        self._cursor = 0
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._cursor = self.platform.news.cursor

        def ring() -> None:
            self._ringing = False
            self._rung.set()

        def heard(_: int) -> None:
            """In the committing thread: cheap while nobody listens, and one call into the loop for many commits."""
            if self._listeners and not self._ringing:
                self._ringing = True
                with suppress(RuntimeError):  # the loop has closed: nobody listens any more
                    loop.call_soon_threadsafe(ring)

        self._unsubscribe = self.platform.news.subscribe(heard)
        self._task = loop.create_task(self._run())

    async def close(self) -> None:
        """End every stream, so that a stopping server does not wait for them."""
        self.closing = True
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for listener in self._listeners:
            listener.lost = True
            with suppress(asyncio.QueueFull):
                listener.queue.put_nowait(None)

    def listen(self, job: str | None = None) -> Listener:
        """A place in the stream.  What was committed before this is the reader's to find in the ledger."""
        listener = Listener(job)
        if not self._listeners:
            self._cursor = self.platform.news.cursor
        self._listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    async def _run(self) -> None:
        """A fault of one look does not end the looking: the next news, or a second, brings another."""
        while True:
            await self._rung.wait()
            await asyncio.sleep(COALESCE_S)
            self._rung.clear()
            try:
                await self._hand_out()
            except Exception:
                log.exception("the diary could not be read; trying again")
                await asyncio.sleep(1.0)
                self._rung.set()

    async def _hand_out(self) -> None:
        more = True
        while more and self._listeners:
            batch = await run_in_threadpool(views.events, self.platform, after=self._cursor, limit=BATCH)
            for event in batch:
                for listener in self._listeners:
                    listener.offer(event)
            more = len(batch) == BATCH
            self._cursor = int(batch[-1]["id"]) if batch else self._cursor


async def follow(news: News, *, after: int, job: str | None = None) -> AsyncIterator[list[EventRow]]:
    """Events with an id above `after`, each once and in order, in batches; an empty batch is a sign of life."""
    listener = news.listen(job)
    try:
        whole = job is not None and await run_in_threadpool(_is_array, news.platform, job)
        cursor, behind = after, True
        while not news.closing:
            if behind or listener.lost:
                listener.refresh()
                named = None if whole else job
                read = await run_in_threadpool(views.events, news.platform, after=cursor, job=named, limit=BATCH)
                behind = len(read) == BATCH
                batch: list[EventRow] = [event for event in read if concerns(event, job)]
                cursor = int(read[-1]["id"]) if read else cursor
            else:
                try:
                    batch = [event async for event in _drain(listener)]
                except TimeoutError:
                    yield []
                    continue
                batch = [event for event in batch if int(event["id"]) > cursor]
                cursor = int(batch[-1]["id"]) if batch else cursor
            if batch:
                yield batch
    finally:
        news.leave(listener)


def _is_array(platform: Platform, job: str) -> bool:
    """An array's own id has no events: its tasks have them."""
    return "_" not in job and not views.events(platform, job=job, limit=1)


async def _drain(listener: Listener) -> AsyncIterator[EventRow]:
    """What is queued, after waiting for the first of it.  Raises TimeoutError when nothing came."""
    event = await asyncio.wait_for(listener.queue.get(), HEARTBEAT_S)
    while event is not None:
        yield event
        event = None if listener.queue.empty() else listener.queue.get_nowait()


async def wait_for(
    news: News, ended: Callable[[], dict[str, Any] | None], *, job: str, timeout_s: float
) -> dict[str, Any] | None:
    """What `ended` answers once it answers at all, asked again after each event of `job`; None at the timeout."""
    listener = news.listen(job)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    try:
        while True:
            answer = await run_in_threadpool(ended)
            left = deadline - loop.time()
            if answer is not None or left <= 0 or news.closing:
                return answer
            with suppress(TimeoutError):
                await asyncio.wait_for(listener.queue.get(), left)
            listener.refresh()
    finally:
        news.leave(listener)


class EventStream:
    """The ASGI answer: one SSE message an event, `id:` its event id, `event:` its kind."""

    def __init__(self, news: News, *, after: int, job: str | None) -> None:
        self.news, self.after, self.job = news, after, job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache, no-transform"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = asyncio.create_task(_gone(receive))
        source = follow(self.news, after=self.after, job=self.job)
        try:
            await _write(send, b"retry: 1000\n: listening\n\n")
            while not gone.done():
                step = asyncio.ensure_future(anext(source))
                await asyncio.wait({step, gone}, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    step.cancel()
                    with suppress(asyncio.CancelledError, StopAsyncIteration):
                        await step
                    return
                await _write(send, encode(step.result()))
        except StopAsyncIteration:
            pass
        except TimeoutError:
            scope["tenure.abort"]()
        finally:
            gone.cancel()
            await source.aclose()  # type: ignore[attr-defined]
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(send: Send, body: bytes) -> None:
    """Raises TimeoutError for a client that does not take what it asked for."""
    await asyncio.wait_for(send({"type": "http.response.body", "body": body, "more_body": True}), STALL_S)


def encode(batch: Sequence[EventRow]) -> bytes:
    """SSE messages; JSON has no raw newline, so one `data:` line is always enough.  None at all is a comment."""
    lines = []
    for event in batch:
        text = json.dumps(event, separators=(",", ":"))
        lines.append(f"id: {event['id']}\nevent: {event['kind']}\ndata: {text}\n\n")
    return "".join(lines or [": here\n\n"]).encode("ascii")
