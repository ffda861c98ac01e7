"""A word now and then about what takes long: one line on stderr, redrawn, and only on a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from .render import plain, span

__all__ = ["Progress"]


class Progress:
    """`with Progress("starting") as p: p.tell("…")`.  Silent for the first half second and off a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = time.monotonic()
        self._shown = False
        self._live = sys.stderr.isatty()

    def tell(self, more: str = "") -> None:
        """Draw again, with the time so far."""
        passed = time.monotonic() - self._began
        if self._live and passed > 0.5:
            self._shown = True
            text = f"{self._what}, {span(passed)}" + (f": {plain(more)}" if more else "")
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
