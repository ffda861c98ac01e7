"""Preemption under fair sharing: from whoever holds the largest share, as long as that makes the shares fairer.

The live tree is used for trying and is left as it was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenure.domain.policy import PreemptionPolicy, ShareStrategy
from tenure.domain.reasons import PreemptionReason

from .items import Item
from .preemption import Attempt, PlaceCheck
from .queues import Queue
from .quota import Node, Usage
from .shares import NO_SHARE, Share, compare, share_of
from .victims import Target, may_take, order_key, surplus
from .world import World

__all__ = ["FairPreemption"]


class _FairAttempt(Attempt):
    """The preemptor's own usage is in the tree while shares are compared; it is taken out for the test of fit."""

    __slots__ = ()

    def fits(self) -> bool:
        self.node.remove_all(self.request)
        fits = Attempt.fits(self)
        self.node.add_all(self.request)
        return fits


class FairPreemption:
    """Kueue's preemption with fair sharing on."""

    def __init__(self, world: World, *, elastic: bool) -> None:
        self.world = world
        self.elastic = elastic

    def targets(
        self, item: Item, queue: Queue, need: frozenset[int], request: Usage, *, place: PlaceCheck | None = None
    ) -> list[Target]:
        if not queue.preempts:
            return []
        candidates = sorted(self._candidates(item, queue, need), key=lambda c: order_key(c, queue))
        if not candidates:
            return []
        attempt = _FairAttempt(queue.node, request, True, place, [])
        queue.node.add_all(request)
        first, *others = self.world.strategies
        enough = self.elastic and self._shrink(candidates, queue, need, first, attempt)
        if not enough:
            candidates = self._without_shrunk(candidates, attempt)
            enough, kept = self._first_round(candidates, queue, need, first, attempt)
            if not enough and others:
                enough = self._second_round(kept, queue, attempt)
        if enough:
            attempt.fill_back()
            if self.elastic:
                attempt.soften()
                attempt.spare_surplus()
        attempt.undo()
        queue.node.remove_all(request)
        return attempt.taken if enough else []

    def _candidates(self, item: Item, queue: Queue, need: frozenset[int]) -> list[Item]:
        found: list[Item] = []
        rules = queue.spec.preemption
        if rules.within_cluster_queue is not PreemptionPolicy.NEVER:
            found += self._matching(item, queue, rules.within_cluster_queue, need)
        if queue.node.parent is not None and queue.reclaims:
            for node in queue.node.root().queues():
                if node is not queue.node and not node.within_nominal(need):
                    found += self._matching(item, self.world.queue_of[node], rules.reclaim_within_cohort, need)
        return found

    def _matching(self, item: Item, queue: Queue, policy: PreemptionPolicy, need: frozenset[int]) -> list[Item]:
        allows = self.world.rights.allows
        return [
            c
            for c in queue.holders.values()
            if not need.isdisjoint(c.frs) and may_take(item, c, policy) and allows(item, c)
        ]

    def _first_round(
        self, candidates: list[Item], queue: Queue, need: frozenset[int], strategy: ShareStrategy, attempt: Attempt
    ) -> tuple[bool, list[Item]]:
        """Enough or not, and the candidates that the strategy spared."""
        ordering = _Ordering(self.world, queue, candidates)
        within_nominal = queue.node.within_nominal(need)
        kept: list[Item] = []
        for target in ordering:
            if target is queue or within_nominal:
                reason = (
                    PreemptionReason.IN_CLUSTER_QUEUE if target is queue else PreemptionReason.IN_COHORT_RECLAMATION
                )
                victim = ordering.pop(target)
                attempt.take(Target(victim, target, reason, victim.usage))
                if attempt.fits():
                    return True, kept
                continue
            ours, theirs = ordering.sides(target)
            new_share, old_share = self._share(ours), self._share(theirs)
            while ordering.left(target):
                victim = ordering.pop(target)
                if not self._passes(strategy, new_share, old_share, theirs, target, victim.usage):
                    kept.append(victim)
                    continue
                attempt.take(Target(victim, target, PreemptionReason.IN_COHORT_FAIR_SHARING, victim.usage))
                if attempt.fits():
                    return True, kept
                break  # the shares have moved: choose the queue afresh
        return False, kept

    def _second_round(self, kept: Sequence[Item], queue: Queue, attempt: Attempt) -> bool:
        """One more chance by the shares as they were before: each queue is asked once for its first candidate."""
        ordering = _Ordering(self.world, queue, kept)
        for target in ordering:
            ours, theirs = ordering.sides(target)
            fairer = compare(self._share(ours), self._share(theirs)) < 0
            victim = ordering.pop(target)
            if fairer:
                attempt.take(Target(victim, target, PreemptionReason.IN_COHORT_FAIR_SHARING, victim.usage))
                if attempt.fits():
                    return True
            ordering.drop(target)
        return False

    def _shrink(
        self, candidates: list[Item], queue: Queue, need: frozenset[int], strategy: ShareStrategy, attempt: Attempt
    ) -> bool:
        """Take the surplus of elastic gangs, by the same rules; True if that is enough."""
        for c in sorted(candidates, key=lambda c: not c.shrinking):
            target_queue = c.queue
            if target_queue is None or (target_queue is not queue and target_queue.node.within_nominal(need)):
                continue
            if target_queue is queue:
                reason = PreemptionReason.IN_CLUSTER_QUEUE
            elif queue.node.within_nominal(need):
                reason = PreemptionReason.IN_COHORT_RECLAMATION
            else:
                reason = PreemptionReason.IN_COHORT_FAIR_SHARING
            target = surplus(c, target_queue, reason)
            if target is None:
                continue
            if reason is PreemptionReason.IN_COHORT_FAIR_SHARING:
                ours, theirs = _sides(queue.node, target_queue.node)
                if not self._passes(
                    strategy, self._share(ours), self._share(theirs), theirs, target_queue, target.freed
                ):
                    continue
            attempt.take(target)
            if attempt.fits():
                return True
        return False

    def _without_shrunk(self, candidates: list[Item], attempt: Attempt) -> list[Item]:
        """Surplus alone was not enough: it is given back, and the gangs stand as whole candidates like the others."""
        attempt.undo()
        attempt.taken.clear()
        return candidates

    def _share(self, node: Node) -> Share:
        return share_of(node, self.world.pairs)

    def _passes(
        self, strategy: ShareStrategy, new: Share, old: Share, theirs: Node, target: Queue, usage: Usage
    ) -> bool:
        match strategy:
            case ShareStrategy.LESS_THAN_INITIAL_SHARE:
                return compare(new, old) < 0
            case ShareStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE:
                target.node.remove_all(usage)
                final = self._share(theirs)
                target.node.add_all(usage)
                return compare(new, final) <= 0


def _sides(own: Node, other: Node) -> tuple[Node, Node]:
    """The two children of the lowest common ancestor, on either side."""
    above = {id(a) for a in own.ancestors()}
    theirs = other
    while theirs.parent is not None and id(theirs.parent) not in above:
        theirs = theirs.parent
    ours = own
    while ours.parent is not theirs.parent and ours.parent is not None:
        ours = ours.parent
    return ours, theirs


class _Ordering:
    """Which queue to take from next: from the root down, always the child with the highest share.

    Branches that do not borrow, or have nobody left, are cut off; the preemptor's own path only once it is empty.
    """

    def __init__(self, world: World, queue: Queue, candidates: Sequence[Item]) -> None:
        self.world = world
        self.queue = queue
        self.own_path = {id(a) for a in queue.node.ancestors()}
        self.waiting: dict[int, list[Item]] = {}
        for c in candidates:
            assert c.queue is not None
            self.waiting.setdefault(id(c.queue.node), []).append(c)
        for waiting in self.waiting.values():
            waiting.reverse()
        self.cut: set[int] = set()

    def __iter__(self) -> Iterator[Queue]:
        root = self.queue.node.root()
        if root is self.queue.node:
            while id(root) not in self.cut and self.left(self.queue):
                yield self.queue
            return
        while id(root) not in self.cut:
            found = self._next(root)
            if found is not None:
                yield self.world.queue_of[found]

    def left(self, queue: Queue) -> bool:
        return bool(self.waiting.get(id(queue.node)))

    def pop(self, queue: Queue) -> Item:
        return self.waiting[id(queue.node)].pop()

    def drop(self, queue: Queue) -> None:
        self.cut.add(id(queue.node))

    def sides(self, target: Queue) -> tuple[Node, Node]:
        return _sides(self.queue.node, target.node)

    def _next(self, cohort: Node) -> Node | None:
        pairs = self.world.pairs
        best_queue: Node | None = None
        queue_share = NO_SHARE
        for node in cohort.queue_children:
            if id(node) in self.cut:
                continue
            share = share_of(node, pairs)
            if (not share.borrowing and node is not self.queue.node) or not self.waiting.get(id(node)):
                self.cut.add(id(node))
                continue
            sign = compare(share, queue_share)
            if sign > 0 or (sign == 0 and best_queue is not None and self._first(node) < self._first(best_queue)):
                best_queue, queue_share = node, share
        best_cohort: Node | None = None
        cohort_share = NO_SHARE
        for node in cohort.cohort_children:
            if id(node) in self.cut:
                continue
            share = share_of(node, pairs)
            if not share.borrowing and id(node) not in self.own_path:
                self.cut.add(id(node))
            elif compare(share, cohort_share) >= 0:
                best_cohort, cohort_share = node, share
        if best_cohort is None and best_queue is None:
            self.cut.add(id(cohort))
            return None
        if best_cohort is not None and compare(cohort_share, queue_share) >= 0:
            return self._next(best_cohort)
        return best_queue

    def _first(self, node: Node) -> tuple[bool, bool, int, int, str]:
        return order_key(self.waiting[id(node)][-1], self.queue)
