"""How often one model may make room for another, and when the next change is due.  Pure; seconds of steady time.

Loading costs what serving gains, so changes are bounded: at most `per_minute` in any sixty seconds.  Two may follow each
other at once, because a person who changes their mind should not wait; the rest keep a distance of a minute's even
share, so that nobody finds the minute used up and waits for the whole of it.
"""

from __future__ import annotations

from collections import deque

from .words import Limits

__all__ = ["Swaps"]

MINUTE_S = 60.0


class Swaps:
    """The swaps of the last minute."""

    def __init__(self, limits: Limits) -> None:
        self._most, self._at_once = limits.swaps_per_minute, min(limits.swaps_at_once, limits.swaps_per_minute)
        self._times: deque[float] = deque()

    @property
    def apart_s(self) -> float:
        """Seconds from one swap to the next, where they never cease."""
        return MINUTE_S / self._most

    def made(self, now: float) -> None:
        self._times.append(now)

    def due_in(self, now: float) -> float:
        """Seconds until the next is allowed; 0 = now.  Never more than a minute."""
        times = self._times
        while times and now - times[0] >= MINUTE_S:
            times.popleft()
        if len(times) < self._at_once:
            return 0.0
        due = times[-1] + self.apart_s
        if len(times) >= self._most:
            due = max(due, times[0] + MINUTE_S)
        return min(max(0.0, due - now), MINUTE_S)
