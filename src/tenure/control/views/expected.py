"""The expected start of a job that waits: copied under the lock, replayed outside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.domain.ids import Instant, JobId, WorkloadKey
from tenure.domain.lifecycle import JobState
from tenure.engine.expectation import Lasting, Situation, expect, situation

from ..clock import wire
from ..histories import MAX_NAMES, histories

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["expected_start"]


def expected_start(platform: Platform, id: str) -> tuple[dict[str, Any] | None, str]:
    """`{p50, p90, basis}` and an empty text, or None and the reason why nothing can be said.

    The conductor's lock is held for the copy alone, a few milliseconds for thousands that wait.
    """
    with platform.conductor.lock:
        now, wall = platform.clock.steady(), platform.clock.now()
        live = platform.conductor.live.get(JobId(id))
        if live is None:
            return None, "it is not in line yet: it came this moment"
        if live.state is not JobState.QUEUED:
            return None, "it does not wait any more"
        if not live.in_engine:
            return None, f"it is not in line yet: {live.message or live.reason}"
        found = situation(platform.engine, WorkloadKey(id), now)
    if isinstance(found, str):
        return None, found
    known, capped = _known(platform, found, now)
    answer = expect(found, known)
    if answer.p50 is None or answer.p90 is None:
        more = f"; of so many names the histories of the first {MAX_NAMES} were read" if capped else ""
        return None, answer.reason + more
    skew = wall - now
    return {"p50": wire(answer.p50 + skew), "p90": wire(answer.p90 + skew), "basis": answer.basis}, ""


def _known(platform: Platform, s: Situation, now: Instant) -> tuple[dict[WorkloadKey, Lasting], bool]:
    """Time limits, histories, and how long those that hold the card have run."""
    everybody = {key: platform.conductor.live.get(JobId(key)) for key in s.everybody()}
    names = list(dict.fromkeys(live.spec.name for live in everybody.values() if live is not None))
    runs = histories(platform.ledger, names)
    ran = {r.workload.key: max(0, now - r.reserved_at) for r in s.holders}
    known: dict[WorkloadKey, Lasting] = {}
    for key, live in everybody.items():
        if live is None:
            continue
        limit = live.spec.time_limit_s
        known[key] = Lasting(
            name=live.spec.name,
            limit_us=int(limit * 1e6) if limit else None,
            runs=runs.get(live.spec.name, ()),
            ran_us=ran.get(key, 0),
            grace_us=int(live.spec.grace_s * 1e6),
            returns=live.state is not JobState.CANCELLING,
        )
    return known, len(names) > MAX_NAMES
