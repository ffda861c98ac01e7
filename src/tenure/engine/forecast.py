"""When would a pending workload start?  A forward replay on a copy of the engine, in virtual time.

The answer is as good as the durations it is given, and silent where they do not reach: whoever has none never ends.
Victims leave at once and begin anew.  Nobody new arrives.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Protocol

from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.plan import Plan

__all__ = ["Player", "forecast"]


class Player(Protocol):
    """The part of an engine that a replay needs."""

    def cycle(self, now: Instant) -> Plan: ...

    def has_heads(self, now: Instant) -> bool: ...

    def next_wakeup(self) -> Instant | None: ...

    def remove(self, key: WorkloadKey) -> None: ...

    def released(self, key: WorkloadKey, *, at: Instant) -> None: ...

    def resized(self, key: WorkloadKey, pod_set: str, count: int) -> None: ...


def forecast(
    player: Player,
    key: WorkloadKey,
    now: Instant,
    *,
    running: Iterable[WorkloadKey],
    leaving: Iterable[WorkloadKey],
    lasts: Mapping[WorkloadKey, int],
    max_cycles: int,
) -> Instant | None:
    """The start of `key`, or None where it does not start in `max_cycles`.  Consumes the player.

    `lasts` is in microseconds: what is left for those that run, the whole for those that wait.
    """
    ends: list[tuple[Instant, int, WorkloadKey]] = []
    started: dict[WorkloadKey, int] = {}

    def starts(who: WorkloadKey, at: Instant) -> None:
        started[who] = started.get(who, 0) + 1
        if who in lasts:
            heapq.heappush(ends, (Instant(at + lasts[who]), started[who], who))

    for who in running:
        starts(who, now)
    for who in leaving:
        player.released(who, at=now)
    before: tuple[WorkloadKey, ...] | None = None
    for _ in range(max_cycles):
        quiet = not player.has_heads(now)
        plan = Plan() if quiet else player.cycle(now)
        for admit in plan.admits:
            if admit.key == key:
                return now
            starts(admit.key, now)
        for shrink in plan.shrinks:
            player.resized(shrink.victim, shrink.pod_set, shrink.count)
        for victim in [*(p.victim for p in plan.preempts), *(e.key for e in plan.evicts)]:
            started[victim] = started.get(victim, 0) + 1
            player.released(victim, at=now)
        decided = bool(plan.admits or plan.preempts or plan.shrinks or plan.evicts)
        if not quiet and (decided or plan.order != before):
            before = None if decided else plan.order
            continue
        before = None
        upcoming = _next(player, ends, started)
        if upcoming is None:
            return None
        now = max(now, upcoming)
        while ends and ends[0][0] <= now:
            _, attempt, who = heapq.heappop(ends)
            if started.get(who) == attempt:
                player.remove(who)
    return None


def _next(
    player: Player, ends: list[tuple[Instant, int, WorkloadKey]], started: Mapping[WorkloadKey, int]
) -> Instant | None:
    """The next thing that happens by itself: an end, or the end of a backoff."""
    while ends and started.get(ends[0][2]) != ends[0][1]:
        heapq.heappop(ends)
    times = [at for at in (player.next_wakeup(), ends[0][0] if ends else None) if at is not None]
    return min(times, default=None)
