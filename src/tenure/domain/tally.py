"""Counting how long things take: a histogram of seconds, as monitoring systems read it.

Pure and small, so that any room can keep one.  One writer at a time; a reader at any moment sees a count that is the
sum of its buckets (the sum of seconds may lag by the one observation that is just being written).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

__all__ = ["FAST", "SLOW", "Tally"]

FAST: tuple[float, ...] = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds; for steps, cycles and commits."""
SLOW: tuple[float, ...] = (1.0, *(2.5 * 2**n for n in range(13)))
"""Seconds; Kueue's fourteen bounds for waiting: 1, then 2.5 doubling up to 10,240."""


class Tally:
    """How many took how long.  `bounds` are upper bounds in seconds, ascending; what is longer is counted above all."""

    __slots__ = ("_counts", "bounds", "seconds")

    def __init__(self, bounds: Iterable[float] = FAST) -> None:
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        """One more.  A clock that was set back makes no negative wait: it counts as none."""
        seconds = max(0.0, seconds)
        self._counts[bisect_left(self.bounds, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """(upper bound, how many took at most that), the last bound infinite: its number is the count."""
        total, lines = 0, []
        for bound, count in zip((*self.bounds, float("inf")), list(self._counts), strict=True):
            total += count
            lines.append((bound, total))
        return lines
