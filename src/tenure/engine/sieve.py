"""Sparing cycles that cannot decide anything, so that weeks are replayed in seconds.

A cycle looks at one workload of each queue; behind a full card every form that waits costs one, to hear "no" again.
The sieve asks first whether a form could be taken at all: is there quota and a card with room, or anybody who might have
to go for it?  It errs towards "perhaps", which costs a cycle; a "no" is certain.  Decisions stay the engine's alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure.domain.ids import WorkloadKey
from tenure.domain.plan import Pend
from tenure.domain.policy import LabelSelector, PreemptionPolicy
from tenure.domain.reasons import PendingReason

from .forms import Form, PodDemand, whole_card_amount
from .queues import Queue
from .quota import Node
from .world import World

__all__ = ["Sieve"]


@dataclass(slots=True)
class _Now:
    """What was worked out once for this look at one queue."""

    queue: Queue
    free: dict[int, int] = field(default_factory=dict)
    lowest: int | None = None  # priority among the holders of the queue
    leaving: bool = False
    reclaimable: bool = False


class Sieve:
    """One for a replay.  `settle` parks what cannot be taken, and says whether nothing else is left to look at.

    Where a queue has several flavors, how far a workload's scan through them has come depends on the number of cycles,
    so nothing is spared there unless `loose`: then a start may differ by a flavor's worth from the engine's own.
    """

    def __init__(self, world: World, *, loose: bool = False) -> None:
        self._world = world
        self._loose = loose

    def settle(self) -> bool:
        """True where a cycle at this instant would change nothing."""
        world = self._world
        if world.fair or world.drains:
            return False
        trees: dict[Node | None, list[Queue]] = {}
        for queue in world.live_queues():
            # queues of different trees may still meet on a card
            trees.setdefault(None if world.cards.known else queue.node.root(), []).append(queue)
        quiet = [self._settle(queues) for queues in trees.values()]
        return all(quiet)

    def _settle(self, queues: list[Queue]) -> bool:
        """Queues that may want the same.  With heads of several queues only all or nothing is parked: their order matters."""
        hopeless: list[tuple[Queue, list[Form]]] = []
        quiet = True
        for queue in queues:
            if not _takes_all_namespaces(queue) or not (self._loose or _has_no_choice(queue)):
                return False
            now = self._look(queue)
            if queue.pending.strict:
                head = queue.pending.pop()
                if head is None:
                    continue
                queue.pending.push(head)
                quiet = quiet and self._is_hopeless(head.form, now)
            else:
                forms = [b.form for b in queue.pending._buckets.values() if b.active.live]
                bad = [form for form in forms if self._is_hopeless(form, now)]
                quiet = quiet and len(bad) == len(forms)
                hopeless.append((queue, bad))
            if not quiet and len(queues) > 1:
                return False
        for queue, forms in hopeless:
            for form in forms:
                queue.pending.park_form(form, _NO)
        return quiet

    def _look(self, queue: Queue) -> _Now:
        now = _Now(queue)
        for item in queue.holders.values():
            now.leaving = now.leaving or item.evicting or bool(item.shrinking)
            if now.lowest is None or item.priority < now.lowest:
                now.lowest = item.priority
        root = queue.node.root()
        deep = bool(root.cohort_children)  # whose quota is over is harder to say there
        for node in root.queues():
            other = self._world.queue_of[node]
            if other is queue or not other.holders:
                continue
            now.leaving = now.leaving or any(i.evicting or i.shrinking for i in other.holders.values())
            over = deep or any(node.usage[i] > node.nominal[i] for i in range(len(self._world.pairs)))
            now.reclaimable = now.reclaimable or over
        return now

    def _is_hopeless(self, form: Form, now: _Now) -> bool:
        if form.reducible or now.leaving or self._may_preempt(form, now):
            return False
        demand = self._world.forms.demand(form, now.queue.spec, self._world.policy)
        return any(
            not self._quota(form, pods, now) or not self._place(form, pods, now.queue) for pods in demand.pod_sets
        )

    def _may_preempt(self, form: Form, now: _Now) -> bool:
        """Whether anybody could be a candidate."""
        if not now.queue.preempts:
            return False
        rules = now.queue.spec.preemption
        if rules.reclaim_within_cohort is not PreemptionPolicy.NEVER and now.reclaimable:
            return True
        if now.lowest is None:
            return False
        match rules.within_cluster_queue:
            case PreemptionPolicy.NEVER:
                return False
            case PreemptionPolicy.LOWER_PRIORITY:
                return now.lowest < form.priority
            case PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
                return now.lowest <= form.priority
            case PreemptionPolicy.ANY:
                return True

    def _quota(self, form: Form, pods: PodDemand, now: _Now) -> bool:
        """Whether some flavor of every group has what is asked."""
        index, node, count = self._world.tree.index, now.queue.node, pods.pod_set.count
        for group in pods.groups:
            for k, quotas in enumerate(group.group.flavors):
                if group.barred[k] is not None:
                    continue
                shares = self._world.cards.whole_shares(quotas.flavor) if form.whole_card else None
                for resource, each in group.amounts:
                    i = index.get((quotas.flavor, resource))
                    if i is None:
                        continue
                    if i not in now.free:
                        now.free[i] = node.available(i)
                    if whole_card_amount(resource, each, shares) * count > now.free[i]:
                        break
                else:
                    break
            else:
                return False
        return True

    def _place(self, form: Form, pods: PodDemand, queue: Queue) -> bool:
        """Whether the cards of the queue's flavors, all together, have room for that many processes."""
        cards = self._world.cards
        shares, memory = pods.card
        if not cards.known or not (shares or memory):
            return True
        flavors = {f.flavor for g in queue.spec.resource_groups for f in g.flavors}
        found = 0
        for card in cards.cards.values():
            if card.flavor not in flavors or card.cordoned:
                continue
            free_shares, free_memory = cards.room(card.id)
            if form.whole_card:
                found += free_shares == card.shares and free_memory >= memory
            else:
                found += min(free // each for free, each in ((free_shares, shares), (free_memory, memory)) if each)
            if found >= pods.pod_set.count:
                return True
        return False


_NO = Pend(key=WorkloadKey(""), reason=PendingReason.WAITING_FOR_QUOTA, message="spared a look")


def _has_no_choice(queue: Queue) -> bool:
    return all(len(group.flavors) <= 1 for group in queue.spec.resource_groups)


def _takes_all_namespaces(queue: Queue) -> bool:
    return queue.spec.namespace_selector == LabelSelector()
