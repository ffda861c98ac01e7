"""The engine: what the rest of the house sees of the mind.

Pure and in memory: no clock, no I/O, no randomness; one caller at a time.  Every decision of a cycle is applied to the
engine itself at once; it is the caller's part to carry it out and to report what came of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.plan import Pend, Plan
from tenure.domain.policy import Policy
from tenure.domain.reasons import PendingReason
from tenure.domain.workload import Admission, Card, Workload

from .cards import Cards, shrunk
from .cycle import Cycle
from .fair_preemption import FairPreemption
from .nomination import nominate
from .preemption import ClassicalPreemption, Oracle
from .world import World

__all__ = ["Engine", "EngineOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What goes beyond Kueue.  `shrink_gangs`: an elastic gang gives up its surplus before anyone is taken whole."""

    shrink_gangs: bool = True


class Engine:
    """Workloads enter by `add` or `restore`, are decided on by `cycle`, and leave by `remove`."""

    def __init__(
        self, policy: Policy, cards: Sequence[Card] = (), options: EngineOptions = EngineOptions()
    ) -> None:  # fmt: skip
        self._options = options
        self._world = World(policy, Cards(cards))
        self._oracle = self._make_oracle()

    def _make_oracle(self) -> Oracle:
        kind = FairPreemption if self._world.fair else ClassicalPreemption
        return kind(self._world, elastic=self._options.shrink_gangs)

    # -- workloads ----------------------------------------------------------------------------------------------

    def add(self, w: Workload, *, requeue_at: Instant | None = None) -> None:
        """A pending workload enters its queue, or is kept aside with the reason.  Known keys are updated."""
        if w.key in self._world.items:
            self.update(w)
            return
        item = self._world.new_item(w)
        item.not_before = requeue_at
        self._world.enter(item)

    def restore(self, w: Workload, admission: Admission, *, reserved_at: Instant, evicting: bool = False) -> None:
        """A workload that already holds quota and a place: the daemon has restarted."""
        self.remove(w.key)
        item = self._world.new_item(w)
        item.evicting = evicting
        self._world.reserve(item, admission, at=reserved_at)

    def remove(self, key: WorkloadKey) -> None:
        """Finished or cancelled: it leaves its queue, or its quota is freed and parked ones are looked at again."""
        item = self._world.items.get(key)
        if item is None:
            return
        if item.holds:
            self._world.free(item)
            self._world.news.pop(key, None)
        else:
            self._world.leave(item)
        del self._world.items[key]

    def update(self, w: Workload) -> None:
        """Priority, activity or queue of a known workload have changed."""
        world = self._world
        item = world.items.get(w.key)
        if item is None:
            self.add(w)
            return
        if item.holds:
            item.adopt(w, world.forms.of(w))
            if item.queue is not None:
                world.move_back(item.queue)
            return
        world.leave(item)
        item.adopt(w, world.forms.of(w))
        item.scan = None
        world.enter(item)

    def evict(self, key: WorkloadKey) -> None:
        """The platform has begun to stop a holder; it keeps its quota until `released`."""
        item = self._world.items.get(key)
        if item is not None and item.holds:
            item.evicting = True

    def released(self, key: WorkloadKey, *, at: Instant, requeue_at: Instant | None = None) -> None:
        """The eviction is complete: quota and place are free, and the workload is queued again."""
        item = self._world.items.get(key)
        if item is None or not item.holds:
            return
        self._world.free(item)
        item.not_before = requeue_at if requeue_at is not None and requeue_at > at else None
        item.scan = None
        self._world.enter(item)

    def resized(self, key: WorkloadKey, pod_set: str, count: int) -> None:
        """An elastic gang runs on with `count` processes: quota and places of the others are free."""
        item = self._world.items.get(key)
        if item is None or item.admission is None:
            return
        assignments = tuple(
            replace(a, count=count, usage={r: n // a.count * count for r, n in a.usage.items()})
            if a.name == pod_set and count < a.count
            else a
            for a in item.admission.assignments
        )
        if item.shrinking.get(pod_set, -1) >= count:
            item.shrinking = {name: n for name, n in item.shrinking.items() if name != pod_set}
        placements = shrunk(item.admission.placements, pod_set, count)
        self._world.resize(item, replace(item.admission, assignments=assignments, placements=placements))

    def backoff(self, key: WorkloadKey, until: Instant | None) -> None:
        """A pending workload is not looked at before `until`; None lets it in again."""
        item = self._world.items.get(key)
        if item is None or item.holds:
            return
        self._world.leave(item)
        item.not_before = until
        self._world.enter(item)

    # -- deciding -----------------------------------------------------------------------------------------------

    def cycle(self, now: Instant) -> Plan:
        """One scheduling cycle.  Without anything to look at the plan is empty."""
        self._world.wake(now)
        return Cycle(self._world, self._oracle, now).run()

    def has_heads(self, now: Instant) -> bool:
        """Whether a cycle at `now` would look at anything, or has something to say."""
        self._world.wake(now)
        return bool(self._world.news) or any(True for _ in self._world.live_queues())

    def next_wakeup(self) -> Instant | None:
        """When the earliest backoff ends."""
        return self._world.next_alarm()

    def replace_policy(self, policy: Policy) -> None:
        """Another policy, at once and whole: holders keep what they hold, everything pending is judged afresh."""
        self._world.replace_policy(policy)
        self._oracle = self._make_oracle()

    def replace_cards(self, cards: Sequence[Card]) -> None:
        """Another set of cards: what waits for a place is looked at again."""
        self._world.cards.replace(cards)
        self._world.move_all_back()

    # -- asking -------------------------------------------------------------------------------------------------

    def status(self, key: WorkloadKey) -> Pend | None:
        """The last verdict on a pending workload; one that never was a head is judged now, as if it were."""
        world = self._world
        item = world.items.get(key)
        if item is None or item.holds:
            return None
        if item.status is not None or item.queue is None:
            return item.status
        return self._judge(key)

    def _judge(self, key: WorkloadKey) -> Pend:
        world = self._world
        item = world.items[key]
        assert item.queue is not None
        scan, item.scan = item.scan, None
        a, targets = nominate(world, item.queue, item, self._oracle)
        item.scan = scan
        del targets
        reason = PendingReason(a.no_fit_reason or PendingReason.PENDING_EVALUATION)
        return Pend(key=key, reason=reason, message=a.message)

    def order(self, cluster_queue: str) -> tuple[WorkloadKey, ...]:
        """Everything that waits for this cluster queue, in heap order: heap, parked and kept aside."""
        queue = self._world.queues.get(cluster_queue)
        return tuple(item.key for item in queue.pending.in_order()) if queue else ()

    def places(self) -> dict[WorkloadKey, bool]:
        """Every pending workload that is in a queue: True in the heap, False parked or set apart."""
        return {
            item.key: item.pile is not None and item.pile.active
            for queue in self._world.queues.values()
            for item in queue.pending.items()
        }
