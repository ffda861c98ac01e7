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

    A file is read once more after its attempt is known to have ended, so nothing written at the last moment is lost.
    """
    listener = news.listen(job)
    loop = asyncio.get_running_loop()
    try:
        source = await run_in_threadpool(views.log, platform, job, stream=stream, attempt=attempt, task=task)
        asked = loop.time()
        while not news.closing:
            if source.path is not None and size_of(source.path) > offset:
                attempt = source.attempt
                async for block in _blocks(source.path, offset):
                    offset += len(block)
                    yield block
                continue
            if source.ended:
                following = await run_in_threadpool(_next_attempt, platform, job, source.attempt) if across else None
                if following is None:
                    return
                attempt, offset = following, 0
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(listener.queue.get(), GROWTH_S)
                    asked = 0.0
                listener.refresh()
            if source.ended or loop.time() - asked > RECHECK_S:
                source = await run_in_threadpool(views.log, platform, job, stream=stream, attempt=attempt, task=task)
                asked = loop.time()
    finally:
        news.leave(listener)


async def _blocks(path: Path, offset: int) -> AsyncIterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        while block := await run_in_threadpool(file.read, BLOCK):
            yield block


def _next_attempt(platform: Platform, job: str, number: int) -> int | None:
    """The attempt after `number`, waited for while the job is to come back; None when there will be none."""
    news = platform.news
    while True:
        cursor = news.cursor
        shown = views.show(platform, job)
        later = [int(item["number"]) for item in shown.get("attempts", ()) if int(item["number"]) > number]
        if later:
            return min(later)
        if shown["state"] == "ended":
            return None
        news.wait(cursor, 5.0)
