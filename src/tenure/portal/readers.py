"""Threads that read what may take long to read.  None of them keeps this process from its end.

A pool of the standard library would: whoever stops the platform would wait for a working tree on a disk that has gone away.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["Readers"]


class Readers:
    """Up to `most` threads, made as they are needed.  `submit` and `close` belong to one thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made = 0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)

    def submit(self, work: Callable[[], None]) -> None:
        """`work` must not raise."""
        self._work.put(work)
        if not self._idle.acquire(blocking=False) and self._made < self._most:
            self._made += 1
            threading.Thread(target=self._run, name=f"submit_{self._made}", daemon=True).start()

    def close(self) -> None:
        """What nobody has begun is dropped; what somebody reads is left to him."""
        with suppress(queue.Empty):
            while True:
                self._work.get_nowait()
        for _ in range(self._made):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # or what it was about stays in memory until the next one comes
            self._idle.release()
