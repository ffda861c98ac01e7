"""Staying with a job while it runs: its bytes by offset, its story by event cursor, across a platform that restarts.

Bytes are passed on untouched and exactly once: after a lost connection the stream goes on at the offset it had reached.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from .client import LOST, Client, Refused, Unreachable, job_path
from .render import note

__all__ = ["News", "Pump", "ReaderGone", "events", "patiently", "write_all"]

CHUNK = 1 << 16
STREAMS = {"stdout": 1, "stderr": 2}
SILENCE_S = 60.0  # the platform gives a sign of life four times as often


T = TypeVar("T")


def patiently(ask: Callable[[], T], *, bound_s: float | None = None) -> T:
    """Ask until somebody answers, with a word when it takes long.  Raises Unreachable after `bound_s` (None: never)."""
    began, pause = time.monotonic(), 0.05
    while True:
        try:
            return ask()
        except Unreachable:
            waited = time.monotonic() - began
            if bound_s is not None and waited > bound_s:
                raise
            if waited > 1:
                _tell_once("the platform does not answer; jobs go on without it, and this waits for it to come back")
        time.sleep(pause)
        pause = min(pause * 1.5, 1.0)


_telling = threading.Lock()
_told: set[str] = set()


def _tell_once(text: str) -> None:
    """Several threads may find out at once that the platform is away; people are told once."""
    with _telling:
        if text not in _told:
            _told.add(text)
            note(text)


class News(NamedTuple):
    """One event of the diary, as the stream carries it."""

    id: int
    kind: str
    message: str
    data: dict[str, Any]
    whole: dict[str, Any]


def events(
    client: Client, *, after: int | None = 0, job: str | None = None, known: Callable[[], bool] | None = None
) -> Iterator[News]:
    """The diary from `after` on (None: from now on), for ever, each event once; reconnects by Last-Event-ID.

    `known` is asked after each lost connection: True ends the iteration (what was waited for is known to be over).
    """
    cursor, pause = after, 0.05
    while True:
        headers = {"Accept": "text/event-stream"} | ({} if cursor is None else {"Last-Event-ID": str(cursor)})
        try:
            with client.stream("/events", query={"job": job}, headers=headers, silence_s=SILENCE_S) as reply:
                for event in _parse(reply):
                    if cursor is None or event.id > cursor:
                        cursor, pause = event.id, 0.05
                        yield event
        except (Unreachable, *LOST):
            pass
        except Refused as error:
            if error.status < 500:
                raise
        if known is not None and known():
            return
        time.sleep(pause)
        pause = min(pause * 1.5, 1.0)


def _parse(reply: http.client.HTTPResponse) -> Iterator[News]:
    """Server-sent events: fields by line, an event by empty line; comments are heartbeats."""
    data: list[str] = []
    while line := reply.readline():
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if text.startswith("data:"):
            data.append(text[5:].removeprefix(" "))
        elif not text and data:
            try:
                body = json.loads("\n".join(data))
            except ValueError:
                body = None
            data = []
            if isinstance(body, dict) and "kind" in body:
                yield News(
                    int(body.get("id") or 0),
                    str(body["kind"]),
                    str(body.get("message") or ""),
                    body.get("data") or {},
                    body,
                )


class Pump(threading.Thread):
    """Copies one stream of one attempt to a descriptor until the attempt has ended and nothing is left."""

    def __init__(
        self,
        client: Client,
        job: str,
        stream: str,
        *,
        attempt: int | None = None,
        task: int | None = None,
        fd: int | None = None,
        tail: int | None = None,
        whole_lines: bool = False,
        gone: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        super().__init__(name=f"{stream} of {job}", daemon=True)
        self._client, self._job, self._stream, self._attempt, self._task = client.twin(), job, stream, attempt, task
        self._fd = STREAMS[stream] if fd is None else fd
        self._tail = tail
        self._gone = gone
        self._whole_lines = whole_lines  # where several processes write to one descriptor
        self._kept = b""
        self.offset = 0
        self.refused: Refused | None = None

    def run(self) -> None:
        try:
            self._follow()
        except ReaderGone as gone:
            self._gone(gone.error)
        except Refused as error:
            self.refused = error

    def _follow(self) -> None:
        pause = 0.05
        while True:
            ended = self._attempt_ended()
            before = self.offset
            try:
                self._copy(follow=not ended)
                if ended:
                    write_all(self._fd, self._kept)
                    return
            except (Unreachable, http.client.HTTPException, ConnectionError, TimeoutError):
                pass  # asked again from the offset reached
            pause = 0.05 if self.offset > before else min(pause * 1.5, 1.0)
            if not ended:
                time.sleep(pause)

    def _attempt_ended(self) -> bool:
        """True once no more bytes can come.  Asked *before* the last read, so that the last read misses nothing."""
        job = patiently(lambda: self._client.get(job_path(self._job)))
        if job.get("state") == "ended":
            return True
        for attempt in job.get("attempts") or []:
            if isinstance(attempt, dict) and attempt.get("number") == self._attempt:
                return attempt.get("ended_at") is not None
        return False

    def _copy(self, *, follow: bool) -> None:
        query = {
            "stream": self._stream, "attempt": self._attempt, "task": self._task, "follow": follow or None,
            "offset": self.offset if self._tail is None else None, "tail": self._tail,
        }  # fmt: skip
        with self._client.stream(job_path(self._job, "/logs"), query=query) as reply:
            if self._tail is not None:
                self.offset = int(reply.headers.get("X-Tenure-Offset") or 0)
                self._tail = None
            while chunk := reply.read1(CHUNK):
                self.offset += len(chunk)
                self._pass_on(chunk)

    def _pass_on(self, chunk: bytes) -> None:
        if self._whole_lines:
            head, newline, tail = (self._kept + chunk).rpartition(b"\n")
            chunk, self._kept = head + newline, tail
        write_all(self._fd, chunk)


class ReaderGone(Exception):
    """Nobody takes our output any more (a closed pipe, a full disk).  Not an OSError: the platform has nothing to do with it."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def write_all(fd: int, data: bytes) -> None:
    """Raises ReaderGone."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except OSError as error:
            raise ReaderGone(error) from None
