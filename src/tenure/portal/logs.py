"""Logs as bytes: any range of a file of any size in constant memory, the last lines, and following while it grows.

The bytes are the job's own, whatever they are: `\\r`, ANSI, invalid UTF-8 and lines of any length pass unchanged.
`terminal` is what makes a bounded, readable view of them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

from starlette.concurrency import run_in_threadpool

from tenure.control import views
from tenure.control.app import Platform

from .stream import News

__all__ = ["BLOCK", "follow_log", "read_from", "size_of", "tail_start"]

BLOCK = 64 * 1024
GROWTH_S = 0.05  # no event tells that a file grew, so it is looked at this often while someone follows
OPENING_S = 0.2  # an attempt that has begun and no file yet
RECHECK_S = 5.0  # besides after every event of the job


def size_of(path: Path | None) -> int:
    """Bytes there are now; 0 for a log that was never begun."""
    try:
        return path.stat().st_size if path is not None else 0
    except FileNotFoundError:
        return 0


def read_from(path: Path, offset: int, end: int | None = None) -> Iterator[bytes]:
    """The bytes from `offset` up to `end` (or the size at the time of reading), a block at a time."""
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        while end is None or offset < end:
            block = file.read(BLOCK if end is None else min(BLOCK, end - offset))
            if not block:
                return
            offset += len(block)
            yield block


def tail_start(path: Path, lines: int) -> int:
    """The offset where the last `lines` lines begin, found backwards by blocks.

    A line ends at a newline; a last one without it counts too.  0 lines start at the end.
    """
    with open(path, "rb", buffering=0) as file:
        end = position = file.seek(0, os.SEEK_END)
        if lines <= 0:
            return end
        wanted = lines
        while position > 0:
            begin = max(0, position - BLOCK)
            file.seek(begin)
            block = file.read(position - begin)
            at = len(block)
            if position == end and block.endswith(b"\n"):
                at -= 1  # the newline that ends the last line opens no other
            while (at := block.rfind(b"\n", 0, at)) >= 0:
                wanted -= 1
                if wanted == 0:
                    return begin + at + 1
            position = begin
    return 0


async def follow_log(
    news: News,
    platform: Platform,
    job: str,
    *,
    stream: str,
    attempt: int | None,
    task: int | None,
    offset: int,
    across: bool,
) -> AsyncIterator[bytes]:
    """The bytes from `offset` on, until the attempt has ended and all was sent; with `across`, until the job has.

    Without an attempt it begins with the first, once there is one.  A file is read once more after its attempt is known
    to have ended, so nothing written at the last moment is lost.
    """
    listener = news.listen(job)
    loop = asyncio.get_running_loop()

    async def look() -> views.LogSource:
        nonlocal attempt
        source = await run_in_threadpool(views.log, platform, job, stream=stream, attempt=attempt, task=task)
        if attempt is None and source.attempt:
            attempt = 1
            source = await run_in_threadpool(views.log, platform, job, stream=stream, attempt=attempt, task=task)
        return source

    try:
        source, asked = await look(), loop.time()
        while not news.closing:
            if source.path is not None and size_of(source.path) > offset:
                async for block in _blocks(source.path, offset):
                    offset += len(block)
                    yield block
                continue
            following = None
            if source.ended:
                following, over = (
                    await run_in_threadpool(_after, platform, job, source.attempt, task) if across else (None, True)
                )
                if over:
                    return
            if following is not None:
                attempt, offset, asked = following, 0, 0.0
            else:
                waits = source.ended or source.attempt == 0  # nothing can grow before the next attempt
                with suppress(TimeoutError):
                    await asyncio.wait_for(listener.queue.get(), RECHECK_S if waits else GROWTH_S)
                    asked = 0.0
                listener.refresh()
            patience = RECHECK_S if source.path is not None else OPENING_S
            if loop.time() - asked > patience:
                source, asked = await look(), loop.time()
    finally:
        news.leave(listener)


async def _blocks(path: Path, offset: int) -> AsyncIterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        while block := await run_in_threadpool(file.read, BLOCK):
            yield block


def _after(platform: Platform, job: str, number: int, task: int | None) -> tuple[int | None, bool]:
    """The attempt after `number` if there is one already, and whether there never will be one."""
    shown = views.show(platform, job)
    if "tasks" in shown:
        shown = views.show(platform, f"{job}_{task}")
    later = [int(item["number"]) for item in shown["attempts"] if int(item["number"]) > number]
    return (min(later), False) if later else (None, shown["state"] == "ended")
