"""Classical preemption: the fewest victims, by priority and by right of quota, that make room for a workload.

The live tree is used for trying and is left as it was found.  Under fair sharing `fair_preemption` chooses instead.
Elastic gangs, where that is on, give up their surplus before anybody is taken whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from tenure.domain.policy import BorrowPolicy, PreemptionPolicy
from tenure.domain.reasons import PreemptionReason

from .items import Item
from .queues import Queue
from .quota import Node, Usage
from .victims import Target, may_take, order_key, shrink_to, surplus
from .world import World

__all__ = ["Attempt", "ClassicalPreemption", "Oracle", "PlaceCheck"]

PlaceCheck = Callable[[Sequence[Target]], bool]
"""Would the workload find places on cards once these have gone?"""


class Oracle(Protocol):
    """Whoever can say which workloads would have to go."""

    def targets(
        self, item: Item, queue: Queue, need: frozenset[int], request: Usage, *, place: PlaceCheck | None = None
    ) -> list[Target]:
        """Victims that make room for `request`, of which the pairs in `need` are short; empty if there are none."""


class _Variant(Enum):
    WITHIN_QUEUE = auto()
    HIERARCHICAL = auto()
    RECLAIM_WITHOUT_BORROWING = auto()
    RECLAIM_WHILE_BORROWING = auto()

    @property
    def reason(self) -> PreemptionReason:
        match self:
            case _Variant.WITHIN_QUEUE:
                return PreemptionReason.IN_CLUSTER_QUEUE
            case _Variant.RECLAIM_WHILE_BORROWING:
                return PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
            case _Variant.HIERARCHICAL | _Variant.RECLAIM_WITHOUT_BORROWING:
                return PreemptionReason.IN_COHORT_RECLAMATION


@dataclass(slots=True, eq=False)
class _Candidate:
    """`meeting` is the lowest cohort that holds both sides; None within the preemptor's own queue."""

    item: Item
    queue: Queue
    meeting: Node | None
    variant: _Variant


@dataclass(slots=True)
class Attempt:
    """Victims taken so far from the live tree, and the test whether they are enough."""

    node: Node
    request: Usage
    allow_borrowing: bool
    place: PlaceCheck | None
    taken: list[Target]

    def fits(self) -> bool:
        for i, amount in self.request.items():
            if not self.allow_borrowing and self.node.borrowing_with(i, amount):
                return False
            if amount > self.node.available(i):
                return False
        return self.place is None or self.place(self.taken)

    def take(self, target: Target) -> None:
        target.take()
        self.taken.append(target)

    def fill_back(self) -> None:
        """Put back whoever turns out not to be needed, the earliest chosen last."""
        taken = self.taken
        for k in range(len(taken) - 2, -1, -1):
            kept = taken[k]
            kept.put_back()
            taken[k] = taken[-1]
            last = taken.pop()
            if not self.fits():
                taken.append(last)
                taken[k] = kept
                kept.take()

    def undo(self) -> None:
        for target in self.taken:
            target.put_back()

    def soften(self) -> None:
        """Of every elastic gang taken whole, take the surplus alone where that turns out to be enough."""
        for k, target in enumerate(self.taken):
            milder = None if target.shrink else surplus(target.item, target.queue, target.reason)
            if milder is None:
                continue
            target.put_back()
            milder.take()
            self.taken[k] = milder
            if not self.fits():
                milder.put_back()
                target.take()
                self.taken[k] = target

    def spare_surplus(self) -> None:
        """Of every gang that shrinks, keep as many processes as the fit allows."""
        for k in range(len(self.taken) - 1, -1, -1):
            target = self.taken[k]
            admission = target.item.admission
            if target.shrink is None or admission is None:
                continue
            name, stays = target.shrink
            most = next(a.count for a in admission.assignments if a.name == name)
            most = min(most, target.item.shrinking.get(name, most))
            for count in range(most, stays, -1):
                milder = shrink_to(target.item, target.queue, target.reason, name, count)
                target.put_back()
                milder.take()
                self.taken[k] = milder
                if self.fits():
                    break
                milder.put_back()
                target.take()
                self.taken[k] = target
        for target in [t for t in self.taken if t.shrink is not None and not t.freed]:
            self.taken.remove(target)


class ClassicalPreemption:
    """Kueue's preemption without fair sharing."""

    def __init__(self, world: World, *, elastic: bool) -> None:
        self.world = world
        self.elastic = elastic

    def targets(
        self, item: Item, queue: Queue, need: frozenset[int], request: Usage, *, place: PlaceCheck | None = None
    ) -> list[Target]:
        if not queue.preempts:
            return []
        own = self._own_candidates(item, queue, need)
        hierarchical, by_priority = self._foreign_candidates(item, queue, need, request)
        groups = [sorted(g, key=lambda c: order_key(c.item, queue)) for g in (hierarchical, by_priority, own)]
        candidates = [c for g in groups for c in g if c.item.evicting]
        candidates += [c for g in groups for c in g if not c.item.evicting]
        if not candidates:
            return []
        no_borrowing = queue.spec.preemption.borrow_within_cohort.policy is BorrowPolicy.NEVER
        node = queue.node
        if not (hierarchical or by_priority) or (
            no_borrowing and not all(node.usage[i] < node.nominal[i] for i in need)
        ):
            attempts: tuple[bool, ...] = (True,)
        elif no_borrowing and not hierarchical:
            attempts = (False, True)
        else:
            attempts = (True, False)
        for allow_borrowing in attempts:
            found = self._try(candidates, need, Attempt(node, request, allow_borrowing, place, []))
            if found:
                return found
        return []

    def _try(self, candidates: list[_Candidate], need: frozenset[int], attempt: Attempt) -> list[Target]:
        if self.elastic and self._shrink(candidates, need, attempt):
            return attempt.taken
        shrunk = {t.item.key: t for t in attempt.taken}
        for c in candidates:
            if not _valid(c, need, allow_borrowing=attempt.allow_borrowing):
                continue
            milder = shrunk.get(c.item.key)
            if milder is not None:
                milder.put_back()
                attempt.taken.remove(milder)
            attempt.take(Target(c.item, c.queue, c.variant.reason, c.item.usage))
            if attempt.fits():
                attempt.fill_back()
                if self.elastic:
                    attempt.soften()
                    attempt.spare_surplus()
                attempt.undo()
                return attempt.taken
        attempt.undo()
        return []

    def _shrink(self, candidates: list[_Candidate], need: frozenset[int], attempt: Attempt) -> bool:
        """Take the surplus of elastic gangs; True if that is enough (and then the tree is as it was)."""
        for c in sorted(candidates, key=lambda c: not c.item.shrinking):
            if c.item.evicting or not _valid(c, need, allow_borrowing=attempt.allow_borrowing):
                continue
            target = surplus(c.item, c.queue, c.variant.reason)
            if target is None:
                continue
            attempt.take(target)
            if attempt.fits():
                attempt.fill_back()
                attempt.spare_surplus()
                attempt.undo()
                return True
        return False

    def _own_candidates(self, item: Item, queue: Queue, need: frozenset[int]) -> list[_Candidate]:
        policy = queue.spec.preemption.within_cluster_queue
        if policy is PreemptionPolicy.NEVER:
            return []
        return [
            _Candidate(c, queue, None, _Variant.WITHIN_QUEUE)
            for c in queue.holders.values()
            if may_take(item, c, policy) and not need.isdisjoint(c.frs) and self.world.rights.allows(item, c)
        ]

    def _foreign_candidates(
        self, item: Item, queue: Queue, need: frozenset[int], request: Usage
    ) -> tuple[list[_Candidate], list[_Candidate]]:
        """Those over whom the place in the tree gives a right, and those over whom only priority may decide."""
        hierarchical: list[_Candidate] = []
        by_priority: list[_Candidate] = []
        if queue.node.parent is None or not queue.reclaims:
            return hierarchical, by_priority
        advantage, rest = _quota_fits(queue.node, request)
        walked: Node | None = None
        for ancestor in queue.node.ancestors():
            self._collect(
                ancestor, walked, item, queue, need, advantage, ancestor, hierarchical if advantage else by_priority
            )
            fits, rest = _quota_fits(ancestor, rest)
            advantage = advantage or fits
            walked = ancestor
        return hierarchical, by_priority

    def _collect(
        self,
        cohort: Node,
        walked: Node | None,
        item: Item,
        queue: Queue,
        need: frozenset[int],
        advantage: bool,
        meeting: Node,
        found: list[_Candidate],
    ) -> None:
        for child in cohort.cohort_children:
            if child is not walked and not child.within_nominal(need):
                self._collect(child, walked, item, queue, need, advantage, meeting, found)
        policy = queue.spec.preemption.reclaim_within_cohort
        for node in cohort.queue_children:
            if node is queue.node or node.within_nominal(need):
                continue
            other = self.world.queue_of[node]
            for c in other.holders.values():
                if not need.isdisjoint(c.frs) and may_take(item, c, policy) and self.world.rights.allows(item, c):
                    found.append(_Candidate(c, other, meeting, _variant(item, c, queue, advantage=advantage)))


def _variant(item: Item, candidate: Item, queue: Queue, *, advantage: bool) -> _Variant:
    if advantage:
        return _Variant.HIERARCHICAL
    borrow = queue.spec.preemption.borrow_within_cohort
    if borrow.policy is BorrowPolicy.NEVER or candidate.priority >= item.priority:
        return _Variant.RECLAIM_WITHOUT_BORROWING
    threshold = borrow.max_priority_threshold
    if threshold is not None and candidate.priority > threshold:
        return _Variant.RECLAIM_WITHOUT_BORROWING
    return _Variant.RECLAIM_WHILE_BORROWING


def _valid(c: _Candidate, need: frozenset[int], *, allow_borrowing: bool) -> bool:
    """Is the candidate's side still over its quota, now that others have been taken?"""
    if c.meeting is None:
        return True
    if allow_borrowing and c.variant is _Variant.RECLAIM_WITHOUT_BORROWING:
        return False
    node: Node | None = c.queue.node
    while node is not None and node is not c.meeting:
        if node.within_nominal(need):
            return False
        node = node.parent
    return True


def _quota_fits(node: Node, request: Usage) -> tuple[bool, Usage]:
    fits = all(node.usage[i] + amount <= node.subtree[i] for i, amount in request.items())
    return fits, {i: max(0, amount - node.local_available(i)) for i, amount in request.items()}
