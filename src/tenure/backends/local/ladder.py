"""Ending a process tree, step by step: a polite signal, a grace by the monotonic clock, the kill, and the names of those
who survive even that (a process in uninterruptible sleep, another user's, a frozen one).
"""

from __future__ import annotations

import signal
from typing import Any

from . import processes
from .clock import Clock
from .tree import Tree

__all__ = ["Ladder"]

NAMED_AFTER_S = 1.0  # from the kill to naming those who are still there
_FIRST_PASS_S, _SLOWEST_PASS_S = 0.02, 1.0  # killing again: a fork in flight escapes one pass


class Ladder:
    """The tree's way out.  Nothing happens by itself: `step` is called when `due` has come."""

    def __init__(self, tree: Tree, clock: Clock) -> None:
        self._tree, self._clock = tree, clock
        self._sent: set[int] = set()
        self._kill_at: float | None = None
        self._killed_at: float | None = None
        self._pause = _FIRST_PASS_S
        self.survivors: list[dict[str, Any]] = []

    @property
    def due(self) -> float | None:
        """When `step` has something to do, by the monotonic clock."""
        return self._kill_at

    def begin(self, number: int, grace_s: float) -> int:
        """Signal everybody, once per kind of signal; the earliest end of a grace counts.  Returns how many were told."""
        at = self._clock.monotonic() + max(0.0, grace_s)
        if self._killed_at is None:
            self._kill_at = at if self._kill_at is None else min(at, self._kill_at)
        if number in self._sent:
            return 0
        self._sent.add(number)
        if number == signal.SIGKILL and self._killed_at is None:
            self._kill_at = self._clock.monotonic()
            return 0
        return self._tree.signal(number)

    def kill(self) -> None:
        """No grace."""
        if self._killed_at is None:
            self._kill_at = self._clock.monotonic()
        self.step()

    def step(self) -> bool:
        """Kill, and kill again.  True when the list of survivors has changed."""
        now = self._clock.monotonic()
        if self._kill_at is None or now < self._kill_at:
            return False
        self._tree.kill()
        if self._killed_at is None:
            self._killed_at = now
        self._kill_at = now + self._pause
        self._pause = min(self._pause * 2, _SLOWEST_PASS_S)
        if now - self._killed_at < NAMED_AFTER_S:
            return False
        found = [
            {"pid": who.pid, "started": who.started, "command": processes.command(who.pid)}
            for who in self._tree.living()
        ]
        changed = found != self.survivors
        self.survivors = found
        return changed
