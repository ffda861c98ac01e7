"""Two clocks.  Stamps are wall time, because people compare them with their own; waiting is steady time, because wall
clocks jump."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from tenure.domain.ids import Instant

__all__ = ["Clock", "from_wire", "span", "wire"]


class Clock:
    """`now` is for stamps; `steady` has the same epoch at start, never jumps, and is what backoffs and limits use."""

    def __init__(self) -> None:
        self._anchor = time.time_ns() // 1000 - time.monotonic_ns() // 1000

    def now(self) -> Instant:
        return Instant(time.time_ns() // 1000)

    def steady(self) -> Instant:
        return Instant(self._anchor + time.monotonic_ns() // 1000)


def wire(at: int | None) -> str | None:
    """RFC 3339 in UTC with microseconds, as every door writes a time."""
    if at is None:
        return None
    seconds, micros = divmod(at, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"


def from_wire(text: str) -> Instant:
    """The inverse of `wire`; any RFC 3339 time.  Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.astimezone()
    whole = int(moment.replace(microsecond=0).timestamp())
    return Instant(whole * 1_000_000 + moment.microsecond)


def span(us: int) -> str:
    """`40s`, `45m`, `1m30s`, `26h`: exact to the second, and as every duration here is read."""
    seconds = us // 1_000_000
    parts = ((seconds // 3600, "h"), (seconds % 3600 // 60, "m"), (seconds % 60, "s"))
    return "".join(f"{n}{unit}" for n, unit in parts if n) or "0s"
