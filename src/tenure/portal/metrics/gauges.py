"""A look at queues and cards as they stand, short enough not to hold up the loop, and possible while it hangs.

The loop's lock is held only to copy numbers out.  Where it is not to be had within a second (a step that takes for ever
is what somebody will want to be told of), the last look is shown again, with its age.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tenure.control.app import Platform
from tenure.control.workloads import pod_requests
from tenure.domain.amounts import CPU
from tenure.domain.explanation import CardUsage, QueueUsage, Standing
from tenure.domain.lifecycle import HOLDS_QUOTA, JobState
from tenure.domain.policy import Policy
from tenure.domain.window import WindowState
from tenure.engine.fairness import Fairness
from tenure.ledger import WindowRow

from .samples import Samples

__all__ = ["Gauges"]

PATIENCE_S = 1.0
MIB = 1 << 20
_CHECKS = "UnsatisfiedAdmissionChecks"  # quota is held, and not every admission check is ready
_STATES = (JobState.QUEUED, *sorted(HOLDS_QUOTA))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """Numbers of one moment.

    `outside` are jobs that a gate keeps from the engine, by local queue and reason.  `checked` are those that hold quota
    and wait for admission checks, by local queue and cluster queue; `checked_usage` is what they hold.  `asked` is what
    those ask for that wait in the engine, by cluster queue and resource.
    """

    at: float
    policy: Policy
    standings: tuple[Standing, ...]
    usage: tuple[QueueUsage, ...]
    cards: tuple[CardUsage, ...]
    states: Mapping[str, int]
    outside: Mapping[tuple[str, str, str], int]
    checked: Counter[tuple[str, str, str]]
    checked_usage: Counter[tuple[str, str, str]]
    asked: Counter[tuple[str, str]]
    windows: tuple[WindowRow, ...]


class Gauges:
    """What one platform looks like.  `collect` from any thread."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._hostname = socket.gethostname()
        self._turn = threading.Lock()  # `_fairness` is one tree, and a second scrape may as well wait for the first
        self._fairness: Fairness | None = None
        self._last: _Look | None = None

    def collect(self, samples: Samples, *, xids: Mapping[str, int]) -> None:
        with self._turn:
            look = self._look()
            if look is not None:
                samples.add("tenure_metrics_snapshot_age_seconds", time.monotonic() - look.at)
                self._jobs(samples, look)
                self._queues(samples, look)
                self._promised(samples, look)
        if self._platform.found.source == "measured":
            self._measured(samples, xids)

    def queues_below(self, policy: Policy) -> dict[str, tuple[str, ...]]:
        """The cluster queues below each cohort."""
        with self._turn:
            return {cohort.name: tuple(cohort.queues) for cohort in self._fair(policy).cohorts()}

    def _fair(self, policy: Policy) -> Fairness:
        if self._fairness is None or self._fairness.policy is not policy:
            self._fairness = Fairness(policy)
        return self._fairness

    def _look(self) -> _Look | None:
        conductor = self._platform.conductor
        if not conductor.lock.acquire(timeout=PATIENCE_S):
            return self._last
        try:
            at = time.monotonic()
            policy = self._platform.policy.current
            standings = conductor.engine.standings()
            usage = conductor.engine.usage()
            cards = conductor.engine.card_usage()
            live = list(conductor.live.values())
            windows = conductor.windows.rows
        finally:
            conductor.lock.release()
        states: Counter[str] = Counter()
        asked: Counter[tuple[str, str]] = Counter()
        known: dict[int, Mapping[str, int]] = {}  # tasks of an array share their spec
        outside: Counter[tuple[str, str, str]] = Counter()
        checked: Counter[tuple[str, str, str]] = Counter()
        checked_usage: Counter[tuple[str, str, str]] = Counter()
        for job in live:
            states[job.state] += 1
            if job.reason == _CHECKS and job.state is JobState.ADMITTED and job.admission is not None:
                checked[job.spec.namespace, job.spec.queue or "default", job.admission.cluster_queue] += 1
                for part in job.admission.assignments:
                    for resource, flavor in part.flavors.items():
                        where = (job.admission.cluster_queue, flavor, resource)
                        checked_usage[where] += part.usage.get(resource, 0)
            if job.state is JobState.QUEUED and job.in_engine:
                local = policy.local_queues.get((job.spec.namespace, job.spec.queue or "default"))
                each = known.get(id(job.spec))
                if each is None:
                    each = known[id(job.spec)] = pod_requests(job.spec, self._platform.cards)
                for resource, amount in each.items():
                    asked[local.cluster_queue if local else "", resource] += amount * job.spec.processes
            if job.state is JobState.QUEUED and not job.in_engine:
                outside[job.spec.namespace, job.spec.queue or "default", job.reason] += 1
        self._last = _Look(
            at=at,
            policy=policy,
            standings=standings,
            usage=usage,
            cards=cards,
            states=states,
            outside=outside,
            checked=checked,
            checked_usage=checked_usage,
            asked=asked,
            windows=windows,
        )
        return self._last

    def _jobs(self, samples: Samples, look: _Look) -> None:
        for state in _STATES:
            samples.add("tenure_jobs", look.states.get(state, 0), state)

    def _queues(self, samples: Samples, look: _Look) -> None:
        fairness = self._fair(look.policy)
        shares = fairness.weighted_shares(look.usage)
        waiting, holding, oldest = _by_queue(look)
        now = self._platform.clock.now()
        open_checks: Counter[str] = Counter()
        for (_, _, queue_name), number in look.checked.items():
            open_checks[queue_name] += number
        for name, queue in look.policy.cluster_queues.items():
            active = fairness.is_active(name)
            for status in ("active", "pending", "terminating"):
                one = status == ("active" if active else "pending")
                samples.add("tenure_cluster_queue_status", one, name, status)
            for place in ("active", "inadmissible"):
                samples.add("tenure_pending_workloads", waiting[name, place], name, place)
            if name in oldest:
                samples.add("tenure_oldest_pending_workload_seconds", max(0.0, (now - oldest[name]) / 1e6), name)
            samples.add("tenure_reserving_active_workloads", holding[name], name)
            samples.add("tenure_admitted_active_workloads", holding[name] - open_checks[name], name)
            samples.add("tenure_cluster_queue_weighted_share", shares.get(name, 0.0), name, queue.cohort or "")
        for cohort in fairness.cohorts():
            samples.add("tenure_cohort_weighted_share", cohort.weighted_share, cohort.name)
            number = sum(holding[name] - open_checks[name] for name in cohort.queues)
            samples.add("tenure_cohort_subtree_admitted_active_workloads", number, cohort.name)
            for name, amounts in (("quota", cohort.quota), ("resource_reservations", cohort.used)):
                for (flavor, resource), amount in amounts.items():
                    amount_in_base = amount / (1000 if resource == CPU else 1)
                    samples.add(f"tenure_cohort_subtree_{name}", amount_in_base, cohort.name, flavor, resource)
        self._local_queues(samples, look)
        self._reasons(samples, look)
        self._amounts(samples, look)

    def _local_queues(self, samples: Samples, look: _Look) -> None:
        counted: Counter[tuple[str, str, str]] = Counter()
        for s in look.standings:
            counted[s.namespace, s.queue, s.place] += s.count
        open_checks: Counter[tuple[str, str]] = Counter()
        for (namespace, name, _), number in look.checked.items():
            open_checks[namespace, name] += number
        for namespace, name in look.policy.local_queues:
            for place in ("active", "inadmissible"):
                number = counted[namespace, name, place]
                samples.add("tenure_local_queue_pending_workloads", number, name, namespace, place)
            number = counted[namespace, name, "holds"]
            samples.add("tenure_local_queue_reserving_active_workloads", number, name, namespace)
            number -= open_checks[namespace, name]
            samples.add("tenure_local_queue_admitted_active_workloads", number, name, namespace)

    def _reasons(self, samples: Samples, look: _Look) -> None:
        by_queue: Counter[tuple[str, str]] = Counter()
        by_local: Counter[tuple[str, str, str]] = Counter()
        for s in look.standings:
            if s.place != "holds":
                by_queue[s.cluster_queue, s.reason] += s.count
                by_local[s.queue, s.namespace, s.reason] += s.count
        for (namespace, name, reason), number in look.outside.items():
            local = look.policy.local_queues.get((namespace, name))
            by_queue[local.cluster_queue if local is not None else "", reason] += number
            by_local[name, namespace, reason] += number
        for (namespace, name, queue), number in look.checked.items():
            by_queue[queue, _CHECKS] += number
            by_local[name, namespace, _CHECKS] += number
        for (queue, reason), number in sorted(by_queue.items()):
            samples.add("tenure_unadmitted_workloads", number, queue, reason, "")
        for (name, namespace, reason), number in sorted(by_local.items()):
            samples.add("tenure_local_queue_unadmitted_workloads", number, name, namespace, reason, "")

    def _amounts(self, samples: Samples, look: _Look) -> None:
        covered = [(row.cluster_queue, row.resource) for row in look.usage]
        for queue_name, resource in dict.fromkeys([*covered, *sorted(look.asked)]):
            asked = look.asked[queue_name, resource] / (1000 if resource == CPU else 1)
            samples.add("tenure_cluster_queue_resource_pending", asked, queue_name, resource)
        for row in look.usage:
            queue = look.policy.cluster_queues.get(row.cluster_queue)
            where = ((queue.cohort if queue else None) or "", row.cluster_queue, row.flavor, row.resource)
            scale = 1000 if row.resource == CPU else 1
            for name, amount in (
                ("resource_reservation", row.used),
                ("resource_usage", row.used - look.checked_usage[row.cluster_queue, row.flavor, row.resource]),
                ("nominal_quota", row.nominal),
                ("borrowing_limit", row.borrowing_limit),
                ("lending_limit", row.lending_limit),
            ):
                if amount is not None:
                    samples.add(f"tenure_cluster_queue_{name}", amount / scale, *where)

    # ------------------------------------------------------------------ cards

    def _promised(self, samples: Samples, look: _Look) -> None:
        source = self._platform.found.source
        for card in look.cards:
            who = (str(card.card), card.flavor, source)
            samples.add("tenure_card_shares", card.shares, *who)
            samples.add("tenure_card_shares_held", card.shares - card.shares_free, *who)
            samples.add("tenure_card_memory_bytes", card.memory, *who)
            samples.add("tenure_card_memory_promised_bytes", card.memory - card.memory_free, *who)
            samples.add("tenure_card_cordoned", card.cordoned, *who)
            claims = [window for window in look.windows if window.card == card.card]
            active = sum(window.state is WindowState.ACTIVE for window in claims)
            samples.add("tenure_window_active", active, str(card.card))
            samples.add("tenure_windows_waiting", len(claims) - active, str(card.card))

    def _measured(self, samples: Samples, xids: Mapping[str, int]) -> None:
        """What NVML says now, without the loop's lock; what a card does not tell is left out, never guessed."""
        found = {card.id: card for card in self._platform.found.found}
        flavors = {card.id: card.flavor for card in self._platform.cards}
        for sample in self._platform.monitor.sample():
            card = found.get(sample.card)
            if card is None or not sample.measured:
                continue
            samples.add("tenure_card_readable", not sample.error, card.uuid, flavors.get(card.id, ""), "measured")
            free = None
            if sample.memory_total is not None and sample.memory_used is not None:
                free = max(0, sample.memory_total - sample.memory_used - card.reserved) / MIB
            for name, reading in (
                ("GPU_UTIL", sample.utilization),
                ("FB_USED", None if sample.memory_used is None else sample.memory_used / MIB),
                ("FB_FREE", free),
                ("GPU_TEMP", sample.temperature),
                ("POWER_USAGE", sample.power),
                ("XID_ERRORS", xids.get(card.uuid)),
            ):
                if reading is not None:
                    who = (str(card.index), card.uuid, self._hostname, card.name)
                    samples.add(f"DCGM_FI_DEV_{name}", reading, *who)


def _by_queue(look: _Look) -> tuple[Counter[tuple[str, str]], Counter[str], dict[str, int]]:
    """Per cluster queue: who waits where, how many hold, and when the oldest that waits was submitted."""
    waiting: Counter[tuple[str, str]] = Counter()
    holding: Counter[str] = Counter()
    oldest: dict[str, int] = {}
    for s in look.standings:
        if s.place == "holds":
            holding[s.cluster_queue] += s.count
        elif s.place != "aside":
            waiting[s.cluster_queue, s.place] += s.count
            oldest[s.cluster_queue] = min(s.oldest, oldest.get(s.cluster_queue, s.oldest))
    return waiting, holding, oldest
