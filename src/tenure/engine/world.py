"""The engine's state: the tree with its usage, the queues with what waits, the workloads with what they hold.

Every change keeps one promise: a node's usage is the sum over the workloads that hold quota under it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.plan import Pend
from tenure.domain.policy import ClusterQueue, Policy, ShareStrategy, StopPolicy
from tenure.domain.reasons import EvictionReason, PendingReason
from tenure.domain.workload import Admission, Workload

from .cards import Cards
from .forms import Demand, Forms
from .items import Item
from .queues import Queue
from .quota import Pair, Tree
from .rights import Rights

__all__ = ["World"]


class World:
    """All of it.  `items` holds every workload the engine knows; `strays` those that no cluster queue takes now."""

    def __init__(self, policy: Policy, cards: Cards, rights: Rights) -> None:
        self.rights = rights
        self.forms = Forms()
        self.cards = cards
        self.items: dict[WorkloadKey, Item] = {}
        self.strays: dict[WorkloadKey, Item] = {}
        self.news: dict[WorkloadKey, Pend] = {}
        self.cycle_no = 0
        self.version = 0  # grows with everything that may change a verdict
        self._seq = 0
        self._alarms: list[tuple[Instant, int, Item]] = []
        self._load(policy)

    # -- policy -------------------------------------------------------------------------------------------------

    def _load(self, policy: Policy) -> None:
        self.policy = policy
        self.fair = policy.fair_sharing is not None
        self.strategies: tuple[ShareStrategy, ...] = (
            (policy.fair_sharing.preemption_strategies if policy.fair_sharing else ())
            or (ShareStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, ShareStrategy.LESS_THAN_INITIAL_SHARE)
        )  # fmt: skip
        held = (pair for item in self.items.values() if item.admission for pair in _pairs(item.admission))
        self.tree = Tree.of(policy, extra=held)
        self.version += 1
        self.forms.policy_changed()
        self.queues = {
            name: Queue(spec, self.tree.queues[name], self.tree.index, self._barrier(spec), fair=self.fair)
            for name, spec in sorted(policy.cluster_queues.items())
        }
        self.queue_of = {q.node: q for q in self.queues.values()}
        self.drains = (
            any(not i.workload.active for i in self.items.values())
            or any(q.spec.stop_policy is StopPolicy.HOLD_AND_DRAIN for q in self.queues.values())
            or any(q.stop_policy is StopPolicy.HOLD_AND_DRAIN for q in policy.local_queues.values())
        )

    @property
    def pairs(self) -> list[Pair]:
        return self.tree.pairs

    def replace_policy(self, policy: Policy) -> None:
        """Another policy: holders keep what they hold, everything pending is looked at afresh."""
        generations = {name: q.generation for name, q in self.queues.items()}
        items = sorted(self.items.values(), key=lambda i: i.seq)
        self.strays.clear()
        self._alarms.clear()
        self._load(policy)
        for name, generation in generations.items():
            if name in self.queues:
                self.queues[name].generation = generation + 1
        for item in items:
            item.pile, item.queue, item.aside, item.scan = None, None, False, None
            if item.admission is not None:
                self._hold(item, item.admission)
            else:
                self.enter(item)

    def _barrier(self, queue: ClusterQueue) -> tuple[PendingReason, str] | None:
        if queue.stop_policy is not StopPolicy.NONE:
            return PendingReason.SUSPENDED, f"ClusterQueue {queue.name} is stopped"
        if any(self.faults(queue)):
            return PendingReason.SUSPENDED, f"ClusterQueue {queue.name} is inactive"
        return None

    def faults(self, queue: ClusterQueue) -> Iterator[str]:
        """What makes the queue inactive, in Kueue's words where it has any (spec 1.2)."""
        flavors = {f.flavor for g in queue.resource_groups for f in g.flavors} - self.policy.flavors.keys()
        if flavors:
            yield f"references missing ResourceFlavor(s): {','.join(sorted(flavors))}"
        checks = {c.name for c in queue.admission_checks} - self.policy.admission_checks.keys()
        if checks:
            yield f"references missing AdmissionCheck(s): {','.join(sorted(checks))}"
        if queue.cohort and queue.cohort in self.tree.cyclic:
            yield f"the parents of its cohort {queue.cohort} go round in a circle"

    # -- entering and leaving -----------------------------------------------------------------------------------

    def new_item(self, w: Workload) -> Item:
        self._seq += 1
        item = self.items[w.key] = Item(w, self.forms.of(w), self._seq)
        return item

    def enter(self, item: Item) -> None:
        """Into the queue its workload names, or aside with the reason."""
        w = item.workload
        item.queue = None
        queue, barrier = self._door(w)
        if queue is None or not w.active:
            item.aside = True
            self.strays[item.key] = item
            reason = (PendingReason.DEACTIVATED, "The workload is deactivated") if not w.active else barrier
            assert reason is not None
            self.tell(item, *reason)
            return
        item.aside = False
        item.queue = queue
        if (boost := self.rights.boost(item)) != item.boost:
            item.lift(boost)
        if queue.barrier is not None:
            self.tell(item, *queue.barrier)
        elif item.status is not None and item.status.reason in _ASIDE_REASONS:
            item.status = None
        if item.not_before is not None:
            queue.pending.set_apart(item)
            heapq.heappush(self._alarms, (item.not_before, item.seq, item))
        else:
            queue.pending.arrive(item)

    def _door(self, w: Workload) -> tuple[Queue | None, tuple[PendingReason, str] | None]:
        local = self.policy.local_queues.get((w.namespace, w.queue))
        if local is None:
            return None, (PendingReason.MISCONFIGURED, f"LocalQueue {w.queue} doesn't exist")
        if local.stop_policy is not StopPolicy.NONE:
            return None, (PendingReason.SUSPENDED, f"LocalQueue {w.queue} is stopped")
        queue = self.queues.get(local.cluster_queue)
        if queue is None:
            return None, (PendingReason.MISCONFIGURED, f"ClusterQueue {local.cluster_queue} doesn't exist")
        return queue, None

    def leave(self, item: Item) -> None:
        """Out of wherever it waits."""
        self.strays.pop(item.key, None)
        self.news.pop(item.key, None)
        item.aside = False
        if item.queue is not None and not item.holds:
            item.queue.pending.remove(item)

    def tell(self, item: Item, reason: PendingReason, message: str) -> None:
        pend = Pend(key=item.key, reason=reason, message=message)
        if item.status != pend:
            item.status = self.news[item.key] = pend

    # -- quota --------------------------------------------------------------------------------------------------

    def _hold(self, item: Item, admission: Admission) -> None:
        index = self.tree.index
        usage: dict[int, int] = {}
        frs: set[int] = set()
        for ps in admission.assignments:
            for resource, flavor in ps.flavors.items():
                i = index.get((flavor, resource))
                if i is None:
                    continue
                frs.add(i)
                amount = ps.usage.get(resource, 0)
                if amount:
                    usage[i] = usage.get(i, 0) + amount
        self.version += 1
        item.admission = admission
        item.usage, item.frs = usage, frozenset(frs)
        item.queue = self.queues.get(admission.cluster_queue)
        if item.queue is not None:
            item.queue.node.add_all(usage)
            item.queue.holders[item.key] = item

    def reserve(self, item: Item, admission: Admission, *, at: Instant) -> None:
        """Quota and place are this workload's from now on."""
        missing = [pair for pair in _pairs(admission) if pair not in self.tree.index]
        if missing:
            item.admission = admission
            item.reserved_at = at
            self.cards.hold(item.key, admission.placements)
            self.replace_policy(self.policy)
            return
        self._hold(item, admission)
        item.reserved_at = at
        item.status = None
        item.scan = None
        item.not_before = None
        self.cards.hold(item.key, admission.placements)

    def free(self, item: Item) -> None:
        """Quota and place are given back; what was parked in the whole cohort tree is looked at again."""
        self.version += 1
        self.cards.free(item.key)
        item.admission = None
        item.evicting = False
        item.shrinking = {}
        queue = item.queue
        if queue is None:
            return
        queue.node.remove_all(item.usage)
        queue.holders.pop(item.key, None)
        queue.generation += 1
        item.usage, item.frs = {}, frozenset()
        self.move_back(queue)

    def resize(self, item: Item, admission: Admission) -> None:
        """The same workload with less: usage and places follow."""
        if item.queue is not None:
            item.queue.node.remove_all(item.usage)
            item.queue.generation += 1
        self.cards.free(item.key)
        self._hold(item, admission)
        self.cards.hold(item.key, admission.placements)
        if item.queue is not None:
            self.move_back(item.queue)

    def move_back(self, queue: Queue) -> None:
        for node in queue.node.root().queues():
            self.queue_of[node].pending.move_back()

    def move_all_back(self) -> None:
        for queue in self.queues.values():
            queue.pending.move_back()

    # -- time ---------------------------------------------------------------------------------------------------

    def wake(self, now: Instant) -> None:
        """Those whose backoff is over enter their queues; the old move forward; who was spared may be spared no more."""
        older, stirred = self.rights.advance(now)
        if older:
            for queue in self.queues.values():
                for item in queue.pending.items():
                    item.lift(self.rights.boost(item))
                queue.pending.reorder()
        if stirred:
            self.version += 1
            self.move_all_back()
        while self._alarms and self._alarms[0][0] <= now:
            _, _, item = heapq.heappop(self._alarms)
            if item.not_before is not None and item.not_before <= now and self.items.get(item.key) is item:
                item.not_before = None
                if item.queue is not None and not item.holds:
                    item.queue.pending.remove(item)
                    item.queue.pending.arrive(item)

    def next_alarm(self) -> Instant | None:
        due = (self._next_backoff(), self.rights.next_alarm())
        return min((at for at in due if at is not None), default=None)

    def _next_backoff(self) -> Instant | None:
        while self._alarms:
            at, _, item = self._alarms[0]
            if item.not_before == at and not item.holds and self.items.get(item.key) is item:
                return at
            heapq.heappop(self._alarms)
        return None

    # -- asking -------------------------------------------------------------------------------------------------

    def demand(self, item: Item, queue: Queue) -> Demand:
        return self.forms.demand(item.form, queue.spec, self.policy)

    def labels(self, namespace: str) -> Mapping[str, str]:
        known = self.policy.namespaces.get(namespace)
        return {"kubernetes.io/metadata.name": namespace, **(known.labels if known else {})}

    def live_queues(self) -> Iterable[Queue]:
        return (q for q in self.queues.values() if q.pending.active and q.barrier is None)

    def leavers(self) -> Iterator[tuple[Item, EvictionReason, str]]:
        """Holders that may not stay, and why; only those that were not asked to leave before."""
        if not self.drains:
            return
        for item in self.items.values():
            if not item.holds or item.evicting:
                continue
            w = item.workload
            local = self.policy.local_queues.get((w.namespace, w.queue))
            if not w.active:
                yield item, EvictionReason.DEACTIVATED, "The workload is deactivated"
            elif item.queue is not None and item.queue.spec.stop_policy is StopPolicy.HOLD_AND_DRAIN:
                yield item, EvictionReason.CLUSTER_QUEUE_STOPPED, "The ClusterQueue is stopped"
            elif local is not None and local.stop_policy is StopPolicy.HOLD_AND_DRAIN:
                yield item, EvictionReason.LOCAL_QUEUE_STOPPED, "The LocalQueue is stopped"

    def aside_of(self, cluster_queue: str) -> Iterator[Item]:
        """Those kept aside whose local queue leads to this cluster queue."""
        for item in self.strays.values():
            local = self.policy.local_queues.get((item.workload.namespace, item.workload.queue))
            if local is not None and local.cluster_queue == cluster_queue:
                yield item

    def holders(self) -> Sequence[Item]:
        return [item for item in self.items.values() if item.holds]


_ASIDE_REASONS = frozenset({PendingReason.MISCONFIGURED, PendingReason.SUSPENDED, PendingReason.DEACTIVATED})


def _pairs(admission: Admission) -> Iterable[Pair]:
    return ((flavor, resource) for ps in admission.assignments for resource, flavor in ps.flavors.items())
