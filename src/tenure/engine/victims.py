"""A victim chosen: whole, or the surplus of an elastic gang; and the rules that make somebody a candidate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tenure.domain.policy import PreemptionPolicy
from tenure.domain.reasons import PreemptionReason
from tenure.domain.workload import Placement

from .items import Item
from .queues import Queue
from .quota import Usage

__all__ = ["Target", "may_take", "order_key", "shrink_to", "surplus"]


@dataclass(slots=True, eq=False)
class Target:
    """`freed` is what its going gives back.  `shrink` names the pod set and how many of its processes stay."""

    item: Item
    queue: Queue
    reason: PreemptionReason
    freed: Usage
    shrink: tuple[str, int] | None = None

    @property
    def places(self) -> tuple[Placement, ...]:
        """The places on cards that come free with it."""
        admission = self.item.admission
        if admission is None:
            return ()
        if self.shrink is None:
            return admission.placements
        name, count = self.shrink
        gone = []
        for p in admission.placements:
            leaving = tuple(r for r in p.ranks if r >= count) if p.pod_set == name else ()
            if leaving:
                n = len(p.ranks)
                shares, memory = p.shares // n * len(leaving), p.memory // n * len(leaving)
                gone.append(Placement(card=p.card, pod_set=name, ranks=leaving, shares=shares, memory=memory))
        return tuple(gone)

    def take(self) -> None:
        self.queue.node.remove_all(self.freed)

    def put_back(self) -> None:
        self.queue.node.add_all(self.freed)


def may_take(preemptor: Item, candidate: Item, policy: PreemptionPolicy) -> bool:
    """Kueue's preemption policies, by priority and age."""
    match policy:
        case PreemptionPolicy.ANY:
            return True
        case PreemptionPolicy.LOWER_PRIORITY:
            return preemptor.priority > candidate.priority
        case PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
            if preemptor.priority == candidate.priority:
                return preemptor.ts < candidate.ts
            return preemptor.priority > candidate.priority
        case PreemptionPolicy.NEVER:
            return False


def order_key(item: Item, own: Queue) -> tuple[bool, bool, int, int, str]:
    """Who goes first: those already going, other queues, the lowest priority, the latest admitted."""
    return (not item.evicting, item.queue is own, item.priority, -item.reserved_at, item.uid)


def surplus(target_of: Item, queue: Queue, reason: PreemptionReason) -> Target | None:
    """The part of an elastic gang above its minimum, or None where nothing can be spared."""
    for name, count, minimum in _elastic(target_of):
        if count > minimum:
            return shrink_to(target_of, queue, reason, name, minimum)
    return None


def shrink_to(item: Item, queue: Queue, reason: PreemptionReason, name: str, count: int) -> Target:
    """The target that leaves `count` processes of one pod set.  Those asked to leave before count as leaving."""
    admission = item.admission
    assert admission is not None
    ps = next(a for a in admission.assignments if a.name == name)
    leaving = ps.count - min(count, item.shrinking.get(name, ps.count))
    freed: Usage = {}
    for resource, flavor in ps.flavors.items():
        i = queue.index.get((flavor, resource))
        if i is not None and ps.usage.get(resource):
            freed[i] = freed.get(i, 0) + ps.usage[resource] // ps.count * leaving
    return Target(item, queue, reason, freed, (name, ps.count - leaving))


def _elastic(item: Item) -> Iterable[tuple[str, int, int]]:
    if item.admission is None or item.evicting:
        return
    counts = {a.name: a.count for a in item.admission.assignments}
    for ps in item.workload.pod_sets:
        if ps.min_count is not None and ps.name in counts:
            yield ps.name, counts[ps.name], ps.min_count
