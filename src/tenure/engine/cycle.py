"""One scheduling cycle: heads, nomination on one picture of the world, order, decisions one by one, requeue.

What a cycle decides it applies to the engine's own state at once, so that the next cycle starts from it.  What it only
tries on the tree it takes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.plan import Admit, Evict, Pend, Plan, Preempt, Shrink
from tenure.domain.policy import PreemptionPolicy
from tenure.domain.reasons import PendingReason, PreemptionReason
from tenure.domain.workload import Admission, PodSetAssignment

from .cards import NoPlace
from .claims import Claims
from .entries import Entry, Requeue
from .flavors import Assignment, Mode, assign
from .items import Item
from .matching import matches_selector
from .nomination import nominate, place_requests
from .order import in_order
from .preemption import Oracle
from .queues import Queue
from .quota import Usage
from .spelling import spell_instant
from .victims import Target
from .world import World

__all__ = ["Cycle", "admission_of"]

_NO_LONGER_FITS = "Workload no longer fits after processing another workload"
_OVERLAP = "Workload has overlapping preemption targets with another workload"
_DEFERRED = f"{_OVERLAP}, but will fit after these preemptions complete"
_FOREIGN_NAMESPACE = "workload namespace doesn't match ClusterQueue selector"

_BECAUSE: Mapping[PreemptionReason, str] = {
    PreemptionReason.IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    PreemptionReason.IN_COHORT_RECLAMATION: "reclamation within the cohort",
    PreemptionReason.IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
}


class Cycle:
    """Used once.  `run` is the recipe; the rest are its steps."""

    def __init__(self, world: World, oracle: Oracle, now: Instant, *, reserve_after_us: int | None = None) -> None:
        self.world = world
        self.reserve_after_us = reserve_after_us
        self.oracle = oracle
        self.now = now
        self.taken: dict[WorkloadKey, Target] = {}
        self.tried: list[tuple[Queue, Usage]] = []
        self.order: list[WorkloadKey] = []
        self.preempts: list[Preempt] = []
        self.shrinks: list[Shrink] = []

    def run(self) -> Plan:
        world = self.world
        evicts = self._drain()
        heads = [(queue, head) for queue in list(world.live_queues()) if (head := queue.pending.pop()) is not None]
        if not heads:
            return Plan(evicts=evicts, pends=self._news(), livelocks=world.rights.found())
        self.claims = Claims(world, self.oracle, self.now, after_us=self.reserve_after_us)
        world.cycle_no += 1
        entries: list[Entry] = []
        for queue, item in heads:
            if not matches_selector(queue.spec.namespace_selector, world.labels(item.workload.namespace)):
                item.scan = None
                self._say(item, PendingReason.MISCONFIGURED, _FOREIGN_NAMESPACE)
                self._requeue(item, queue, Requeue.NAMESPACE)
                continue
            world.rights.personal = False
            a, targets = nominate(world, queue, item, self.oracle)
            entries.append(Entry(item, queue, a, targets, a.scan, a.message, personal=world.rights.personal))
        for entry in in_order(world, entries):
            self.order.append(entry.item.key)
            self._process(entry)
        for queue, usage in self.tried:
            queue.node.remove_all(usage)
        for target in self.taken.values():
            if target.shrink is None:
                target.item.evicting = True
                target.queue.generation += 1
            else:
                target.item.shrinking[target.shrink[0]] = target.shrink[1]
        admits = tuple(self._settle(entry) for entry in entries if entry.admitted)
        for entry in entries:
            if not entry.admitted:
                entry.item.scan = entry.scan
                self._say(entry.item, entry.reason, entry.message)
                self._requeue(entry.item, entry.queue, entry.requeue, personal=entry.personal)
        return Plan(
            order=tuple(self.order),
            admits=admits,
            preempts=tuple(self.preempts),
            evicts=evicts,
            shrinks=tuple(self.shrinks),
            pends=self._news(),
            livelocks=world.rights.found(),
        )

    def _drain(self) -> tuple[Evict, ...]:
        """Holders whose queue is stopped with HoldAndDrain, or that were deactivated, have to go."""
        evicts = []
        for item, reason, message in list(self.world.leavers()):
            item.evicting = True
            evicts.append(Evict(key=item.key, reason=reason, message=message))
        return tuple(evicts)

    # -- one entry ----------------------------------------------------------------------------------------------

    def _process(self, e: Entry) -> None:
        if any(t.item.key in self.taken for t in e.targets):
            self._reconsider(e)
        a = e.assignment
        if a.deferred:
            e.message, e.reason = _DEFERRED, PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS
            e.requeue, e.scan = Requeue.PREEMPTING, None
            self._try(e.queue, a.usage)
            return
        if a.mode is Mode.NO_FIT:
            e.requeue = Requeue.NO_FIT
            e.reason = PendingReason(a.no_fit_reason or PendingReason.PENDING)
            return
        if a.mode is not Mode.FIT and not e.targets:
            e.requeue, e.reason = Requeue.NO_CANDIDATES, PendingReason.WAITING_FOR_QUOTA
            if e.queue.spec.preemption.reclaim_within_cohort is not PreemptionPolicy.ANY:
                self._try(e.queue, _reservation(e.queue, a))
            return
        if any(t.item.key in self.taken for t in e.targets):
            self._skip(e, _OVERLAP)
            return
        if not self._fits(e):
            self._skip(e, _NO_LONGER_FITS)
            return
        if a.mode is Mode.FIT and not (self._unclaimed(e) and self._place(e)):
            return
        for target in e.targets:
            self.taken[target.item.key] = target
        if a.mode is Mode.FIT:
            e.queue.node.add_all(e.assignment.usage)
            e.admitted = True
            return
        self._try(e.queue, a.usage)
        self._preempt(e)

    def _skip(self, e: Entry, message: str) -> None:
        e.message, e.reason, e.requeue = message, PendingReason.WAITING_FOR_QUOTA, Requeue.SKIPPED

    def _reconsider(self, e: Entry) -> None:
        """Others already take some of its victims: judge it again as if those were gone, on the flavors it chose."""
        e.item.scan = None
        nominated = [{r: c.flavor for r, c in ps.choices.items()} for ps in e.assignment.pod_sets]
        nominated += [{} for _ in range(len(e.item.form.pod_sets) - len(nominated))]
        for target in self.taken.values():
            target.take()
            target.queue.holders.pop(target.item.key, None)
        a, targets = nominate(self.world, e.queue, e.item, self.oracle, nominated=nominated)
        for target in self.taken.values():
            target.put_back()
            target.queue.holders[target.item.key] = target.item
        a.deferred = a.mode is Mode.FIT
        e.assignment, e.targets, e.scan, e.message = a, targets, a.scan, a.message

    def _fits(self, e: Entry) -> bool:
        going = {**self.taken, **{t.item.key: t for t in e.targets}}
        for target in going.values():
            target.take()
        fits = e.queue.node.fits(e.assignment.usage)
        for target in going.values():
            target.put_back()
        return fits

    def _unclaimed(self, e: Entry) -> bool:
        """Nobody has a claim on the room that the entry would take."""
        claim = self.claims.against(e)
        if claim is None:
            return True
        e.message = f"Room is kept for {claim.item.key}, which has waited since {spell_instant(claim.item.ts)}"
        e.reason, e.scan = PendingReason.WAITING_FOR_QUOTA, None
        return False

    def _place(self, e: Entry) -> bool:
        """The last check: a card for every process, or the entry waits with that as its reason.

        A gang with a minimum takes as many processes as there are places, where that is enough.
        """
        cards = self.world.cards
        if not cards.known:
            return True
        found = cards.place(place_requests(self.world, e.item, e.assignment))
        while isinstance(found, NoPlace):
            smaller = self._smaller(e, found)
            if smaller is None:
                e.message = f"couldn't assign flavors to pod set {found.request.pod_set}: {found.message}"
                e.reason, e.requeue = PendingReason.TOPOLOGY_PLACEMENT_FAILED, Requeue.NO_FIT
                return False
            e.assignment = smaller
            found = cards.place(place_requests(self.world, e.item, smaller))
        e.placements = found
        cards.hold(e.item.key, found)
        return True

    def _smaller(self, e: Entry, found: NoPlace) -> Assignment | None:
        """The same workload with the processes that found a place; None where that is below its minimum."""
        counts = []
        for ps in e.assignment.pod_sets:
            spec = ps.demand.pod_set
            if spec.name != found.request.pod_set:
                counts.append(ps.count)
            elif spec.min_count is not None and spec.min_count <= found.placed < ps.count:
                counts.append(found.placed)
            else:
                return None
        nominated = [{r: c.flavor for r, c in ps.choices.items()} for ps in e.assignment.pod_sets]
        scan, e.item.scan = e.item.scan, None
        a = assign(self.world, e.queue, e.item, self.oracle, counts=counts, nominated=nominated)
        e.item.scan = scan
        return a if a.mode is Mode.FIT and e.queue.node.fits(a.usage) else None

    def _try(self, queue: Queue, usage: Usage) -> None:
        """Counted for the rest of this cycle only."""
        queue.node.add_all(usage)
        self.tried.append((queue, usage))

    def _preempt(self, e: Entry) -> None:
        e.reason = PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS
        e.message += f". Pending the preemption of {len(e.targets)} workload(s)"
        e.requeue, e.scan = Requeue.PREEMPTING, None
        ours = e.queue.node.path()
        for t in e.targets:
            message = (
                f"Preempted to accommodate a workload (UID: {e.item.uid}, JobUID: UNKNOWN) due to "
                f"{_BECAUSE[t.reason]}; preemptor path: {ours}; preemptee path: {t.queue.node.path()}"
            )
            victim, preemptor = t.item.key, e.item.key
            if t.shrink is not None:
                name, count = t.shrink
                if count < t.item.shrinking.get(name, count + 1):
                    self.shrinks.append(
                        Shrink(
                            victim=victim, preemptor=preemptor, pod_set=name, count=count, reason=t.reason, message=message
                        )
                    )  # fmt: skip
            elif not t.item.evicting:
                self.world.rights.took(e.item, t.item)
                self.preempts.append(Preempt(victim=victim, preemptor=preemptor, reason=t.reason, message=message))

    # -- afterwards ---------------------------------------------------------------------------------------------

    def _settle(self, e: Entry) -> Admit:
        admission = admission_of(e)
        e.queue.node.remove_all(e.assignment.usage)
        self.world.cards.free(e.item.key)
        if e.queue.pending.sticky is e.item:
            e.queue.pending.sticky = None
        self.world.news.pop(e.item.key, None)
        self.world.reserve(e.item, admission, at=self.now)
        e.queue.generation += 1  # as Kueue's cache sees the echo of an admission
        return Admit(key=e.item.key, admission=admission)

    def _requeue(self, item: Item, queue: Queue, why: Requeue, *, personal: bool = False) -> None:
        pending = queue.pending
        if why is Requeue.PREEMPTING:
            pending.sticky = None if pending.strict else item
        at_once = why is not Requeue.NAMESPACE if pending.strict else why.at_once
        if at_once or (item.scan is not None and item.scan.unfinished):
            pending.push(item)
        elif why is Requeue.NAMESPACE:
            pending.set_apart(item)
        else:
            pending.park(item)
            if why.for_equals and not pending.strict and not personal:
                assert item.status is not None
                pending.park_form(item.form, item.status)

    def _say(self, item: Item, reason: PendingReason, message: str) -> None:
        self.world.tell(item, reason, message)

    def _news(self) -> tuple[Pend, ...]:
        news = tuple(self.world.news.values())
        self.world.news.clear()
        return news


def _reservation(queue: Queue, a: Assignment) -> Usage:
    """What is kept free, for this cycle, for one who may preempt later and finds nobody now."""
    node = queue.node
    reserved: Usage = {}
    for i, amount in a.usage.items():
        limit = node.borrow[i]
        if a.level > 0:
            reserved[i] = amount if limit is None else min(amount, node.nominal[i] + limit - node.usage[i])
        else:
            reserved[i] = max(0, min(amount, node.nominal[i] - node.usage[i]))
    return reserved


def admission_of(e: Entry) -> Admission:
    """The reservation in words: which flavor pays for what, for how many processes, and on which cards."""
    assignments: Sequence[PodSetAssignment] = [
        PodSetAssignment(
            name=ps.demand.pod_set.name,
            flavors={r: c.flavor for r, c in ps.choices.items()},
            usage={r: ps.amounts[r] for r in ps.choices},
            count=ps.count,
        )
        for ps in e.assignment.pod_sets
    ]
    return Admission(cluster_queue=e.queue.spec.name, assignments=tuple(assignments), placements=e.placements)
