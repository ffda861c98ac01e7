"""How the loop is doing, for whoever watches the house: how long its steps take, and when the last one was.

Written by the loop's thread alone, read by anybody.  Times are of a clock that never jumps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tenure.domain.plan import Plan
from tenure.domain.tally import Tally

__all__ = ["Pulse"]


class Pulse:
    """`admitted` and `inadmissible` are Kueue's attempts: scheduling cycles that had heads, with and without success."""

    def __init__(self) -> None:
        self.steps = Tally()
        self.admitted = Tally()
        self.inadmissible = Tally()
        self._beat = time.monotonic()

    @property
    def silent_s(self) -> float:
        """Seconds since the loop last finished a step.  A healthy loop makes one at least every five seconds."""
        return time.monotonic() - self._beat

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around one step.  One that fails is no beat: the loop is alive when steps succeed."""
        began = time.perf_counter()
        try:
            yield
            self._beat = time.monotonic()
        finally:
            self.steps.observe(time.perf_counter() - began)

    def cycled(self, plan: Plan, seconds: float) -> None:
        """One scheduling cycle.  Without a head to look at it was no attempt."""
        if plan.order:
            (self.admitted if plan.admits else self.inadmissible).observe(seconds)
