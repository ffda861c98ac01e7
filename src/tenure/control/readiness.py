"""waitForPodsReady: a job that is admitted has to start within a time, or makes room and tries again later.

On one machine ready means that the first process of the attempt has started.  Off unless the policy's Configuration asks
for it.  How often it was too late is read off its attempts, so that a restart forgets nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenure.domain.ids import Instant, JobId, WorkloadKey
from tenure.domain.lifecycle import JobState
from tenure.domain.plan import Evict
from tenure.domain.policy import WaitForPodsReady
from tenure.domain.reasons import EvictionReason
from tenure.ledger import AttemptRow

from . import admitting
from .clock import wire
from .live import Live

if TYPE_CHECKING:
    from .conductor import Conductor

__all__ = ["Readiness", "backoff_s", "times_late"]


def backoff_s(rule: WaitForPodsReady, count: int) -> float:
    """Kueue's: base · 2^(count-1) seconds after the count-th time, at most the longest."""
    return min(rule.backoff_max_s, rule.backoff_base_s * float(2 ** min(count - 1, 64)))


def times_late(attempts: Sequence[AttemptRow]) -> int:
    """How often in a row of attempts it was too late, since it was last let in again by hand."""
    count = 0
    for attempt in attempts:
        match attempt.evicted_reason:
            case EvictionReason.PODS_READY_TIMEOUT:
                count += 1
            case EvictionReason.DEACTIVATED_REQUEUING_LIMIT:
                count = 0
    return count


class Readiness:
    """Who has to have started by when.  Used by the loop's thread alone."""

    def __init__(self) -> None:
        self._due: list[tuple[Instant, JobId, int]] = []

    def clear(self) -> None:
        self._due.clear()

    def next_due(self) -> Instant | None:
        return self._due[0][0] if self._due else None

    def began(self, conductor: Conductor, live: Live, *, at: Instant) -> None:
        """The start of its attempt is asked for; `at` is steady time."""
        rule = conductor.engine.policy.wait_for_pods_ready
        if rule is not None:
            heapq.heappush(self._due, (Instant(at + int(rule.timeout_s * 1e6)), live.id, live.attempts))

    def look(self, conductor: Conductor) -> None:
        """Evict whoever is too late."""
        now = conductor.clock.steady()
        while self._due and self._due[0][0] <= now:
            _, job, attempt = heapq.heappop(self._due)
            live = conductor.live.get(job)
            rule = conductor.engine.policy.wait_for_pods_ready
            if rule is not None and live is not None and live.attempts == attempt and live.state is JobState.ADMITTED:
                self._too_late(conductor, live, rule)

    def _too_late(self, conductor: Conductor, live: Live, rule: WaitForPodsReady) -> None:
        count = times_late(conductor.ledger.attempts(live.id)) + 1
        key = WorkloadKey(live.id)
        if rule.backoff_limit_count is not None and count > rule.backoff_limit_count:
            message = (
                "The workload is deactivated due to exceeding the maximum number of re-queuing retries "
                f"({rule.backoff_limit_count}); `tenure release {live.id}` lets it try again"
            )
            evict = Evict(key=key, reason=EvictionReason.DEACTIVATED_REQUEUING_LIMIT, message=message)
            admitting.evict(conductor, evict, deactivate=True)
            return
        wait = int(backoff_s(rule, count) * 1e6)
        most = "" if rule.backoff_limit_count is None else f" of {rule.backoff_limit_count}"
        message = (
            f"Exceeded the PodsReady timeout {live.spec.namespace}/{live.id}: no process within {rule.timeout_s:g} s; "
            f"requeued ({count}{most}), not before {wire(conductor.clock.now() + wait)}"
        )
        evict = Evict(key=key, reason=EvictionReason.PODS_READY_TIMEOUT, message=message)
        admitting.evict(conductor, evict, not_before=Instant(conductor.clock.steady() + wait))
