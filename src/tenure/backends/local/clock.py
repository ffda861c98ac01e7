"""The supervisor's clocks: the wall for what people read, the monotonic ones for everything that is waited for."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """The machine's clocks.  A test hands over another one to make the wall jump."""

    def wall(self) -> int:
        """Microseconds since the epoch, UTC.  May jump in either direction."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds; never jumps, stands still while the machine is suspended: graces and time limits."""
        return time.monotonic()

    def elapsed(self) -> int:
        """Microseconds since boot, with suspended time: how long something took."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def end_of(*, started_wall: int, started_elapsed: int, wall: int, elapsed: int) -> int:
    """The wall time of an end: the wall's own word, unless the wall was set back so far that it precedes the start."""
    if wall >= started_wall:
        return wall
    return started_wall + max(0, elapsed - started_elapsed)
