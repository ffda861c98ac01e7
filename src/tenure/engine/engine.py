"""The engine: what the rest of the house sees of the mind.

Pure and in memory: no clock, no I/O, no randomness; one caller at a time.  Every decision of a cycle is applied to the
engine itself at once; it is the caller's part to carry it out and to report what came of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tenure.domain.errors import NotFound
from tenure.domain.explanation import CardUsage, Counterfactual, Explanation, QueueUsage, Standing
from tenure.domain.ids import CardId, Instant, WorkloadKey
from tenure.domain.options import EngineOptions
from tenure.domain.plan import Pend, Plan
from tenure.domain.policy import Policy
from tenure.domain.reasons import PendingReason
from tenure.domain.workload import Admission, Card, Workload

from .books import card_usage, queue_usage
from .cards import Cards, shrunk
from .cycle import Cycle
from .explain import blockers
from .fair_preemption import FairPreemption
from .items import Item
from .preemption import ClassicalPreemption, Oracle
from .rights import Rights
from .standings import standings
from .verdicts import Verdicts, judge
from .whatif import Trial, counterfactuals, play, rivals_of, starts
from .world import World

_JUDGED_ALONE = frozenset(
    {
        PendingReason.WAITING_FOR_QUOTA,
        PendingReason.EXCEEDS_MAX_QUOTA,
        PendingReason.NO_MATCHING_FLAVOR,
        PendingReason.PENDING_EVALUATION,
        PendingReason.PENDING,
    }
)

__all__ = ["Engine", "EngineOptions", "Reservation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """One that holds quota: all that `restore` needs to make another engine hold it too."""

    workload: Workload
    admission: Admission
    reserved_at: Instant
    evicting: bool


class Engine:
    """Workloads enter by `add` or `restore`, are decided on by `cycle`, and leave by `remove`."""

    def __init__(
        self, policy: Policy, cards: Sequence[Card] = (), options: EngineOptions | None = None
    ) -> None:  # fmt: skip
        """`options` None: those of the policy, also of one that comes later."""
        self._given = options
        self._world = World(policy, Cards(cards), Rights(self._options_of(policy)))
        self._oracle = self._make_oracle()
        self._verdicts = Verdicts(self._world)

    def _make_oracle(self) -> Oracle:
        kind = FairPreemption if self._world.fair else ClassicalPreemption
        return kind(self._world, elastic=self.options.shrink_gangs)

    def _options_of(self, policy: Policy) -> EngineOptions:
        return self._given or policy.engine_options or EngineOptions()

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
        self._world.rights.gone(key)
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
            world.version += 1
            world.drains = world.drains or not w.active
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
            self._world.version += 1

    def released(self, key: WorkloadKey, *, at: Instant, requeue_at: Instant | None = None) -> None:
        """The eviction is complete: quota and place are free, and the workload is queued again."""
        item = self._world.items.get(key)
        if item is None or not item.holds:
            return
        self._world.free(item)
        item.not_before = requeue_at if requeue_at is not None and requeue_at > at else None
        item.scan, item.status = None, None
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
        return Cycle(self._world, self._oracle, now, reserve_after_us=self.options.reserve_after_us).run()

    def has_heads(self, now: Instant) -> bool:
        """Whether a cycle at `now` would look at anything, or has something to say."""
        self._world.wake(now)
        world = self._world
        return bool(world.news) or any(True for _ in world.live_queues()) or any(True for _ in world.leavers())

    def next_wakeup(self) -> Instant | None:
        """When the earliest backoff ends."""
        return self._world.next_alarm()

    def replace_policy(self, policy: Policy) -> None:
        """Another policy, at once and whole: holders keep what they hold, everything pending is judged afresh."""
        self._world.rights.options = self._options_of(policy)
        self._world.replace_policy(policy)
        self._oracle = self._make_oracle()

    def replace_cards(self, cards: Sequence[Card]) -> None:
        """Another set of cards: what waits for a place is looked at again."""
        self._world.cards.replace(cards)
        self._world.version += 1
        self._world.move_all_back()

    # -- asking -------------------------------------------------------------------------------------------------

    def status(self, key: WorkloadKey) -> Pend | None:
        """The last verdict on a pending workload; one that never was a head is judged now, as if it were."""
        item = self._world.items.get(key)
        if item is None or item.holds:
            return None
        if item.status is not None or item.queue is None:
            return item.status
        like = item.queue.pending.failed.get(item.form)
        if like is None:
            like = self._verdicts.get(item, self._oracle)
        return replace(like, key=key)

    def verdict(self, key: WorkloadKey) -> Pend | None:
        """As `status`, with the numbers of now: a parked workload's last evaluation may be long ago."""
        pend = self.status(key)
        item = self._world.items.get(key)
        if pend is None or item is None or item.queue is None or item.queue.barrier is not None:
            return pend
        if pend.reason not in _JUDGED_ALONE:
            return pend  # it tells of others too: of victims on their way, of a place that was lost in the cycle
        now = self._verdicts.get(item, self._oracle)
        return pend if now.reason is PendingReason.PENDING_EVALUATION else replace(now, key=key)

    def explain(self, key: WorkloadKey, now: Instant, *, helpful: bool = True) -> Explanation:
        """Every blocker with its numbers, and (`helpful`) what would help, checked on a copy.  Raises NotFound."""
        world = self._world
        world.rights.now = max(world.rights.now, now)
        item = world.items.get(key)
        if item is None:
            raise NotFound(f"the engine knows no workload {key}")
        if item.admission is not None:
            text = f"Quota reserved in ClusterQueue {item.admission.cluster_queue}"
            return Explanation(key=key, reason=PendingReason.PENDING, message=text)
        pend = self.verdict(key)
        assert pend is not None
        a, targets = judge(world, item, self._oracle) if item.queue is not None else (None, [])
        found = tuple(blockers(world, item, a, targets, now))
        helps: tuple[Counterfactual, ...] = ()
        if helpful and item.queue is not None and item.queue.barrier is None:
            helps = tuple(counterfactuals(world, item, found, self._trial(now)))
        return Explanation(
            key=key,
            reason=pend.reason,
            message=pend.message,
            position=item.queue.pending.position(item) if item.queue is not None else None,
            blockers=found,
            counterfactuals=helps,
        )

    def obstacle(
        self,
        w: Workload,
        *,
        card: CardId,
        without: Iterable[WorkloadKey],
        returning: Iterable[WorkloadKey] = (),
        entering: Iterable[Workload] = (),
        now: Instant,
    ) -> Explanation | None:
        """What keeps `w` from starting when these have left the card and it takes nobody else; None: nothing does.

        It takes those of `entering` all the same, who are in line or are about to be.  `returning` leave it, too, and are in line again: another card may have room for them.  Played on copies, first
        with `w` alone and then with those who would come before it.  One that would have to wait for its victims alone
        is as good as started.
        """
        back = [self._world.items[key].workload for key in returning if key in self._world.items]
        gone = {*without, *(one.key for one in back)}
        copy = self._copy(gone, ())
        copy.add(w)
        queue = copy._world.items[w.key].queue
        if queue is not None and starts(w.key, play(copy.cycle, copy.has_heads, now)):
            rank = copy._world.items[w.key].rank
            enter = {one.key: one for one in entering}
            rivals = [*rivals_of(self._world, queue.spec.name, w.key, rank), *back]
            rivals = [replace(one, avoid=one.avoid | {card}) for one in rivals if one.key not in enter]
            rivals += [replace(one, avoid=one.avoid - {card}) for one in enter.values()]
            if not rivals:
                return None
            copy = self._copy(gone, ())
            for rival in rivals:
                copy.add(rival)
            copy.add(w)
            if starts(w.key, play(copy.cycle, copy.has_heads, now)):
                return None
        return copy.explain(w.key, now, helpful=False)

    def order(self, cluster_queue: str) -> tuple[WorkloadKey, ...]:
        """Everything that waits for this cluster queue, in heap order: heap, parked, set apart and kept aside."""
        queue = self._world.queues.get(cluster_queue)
        line = queue.pending.in_order() if queue else []
        aside = sorted(self._world.aside_of(cluster_queue), key=lambda item: item.rank)
        return tuple(item.key for item in (*line, *aside))

    def position(self, key: WorkloadKey) -> int | None:
        """How many come before it in its cluster queue; None where it does not wait in one.  Cheaper than `order`."""
        item = self._world.items.get(key)
        if item is None or item.holds or item.queue is None:
            return None
        return item.queue.pending.position(item)

    @property
    def policy(self) -> Policy:
        return self._world.policy

    @property
    def cards(self) -> tuple[Card, ...]:
        return tuple(self._world.cards.cards.values())

    @property
    def options(self) -> EngineOptions:
        return self._world.rights.options

    def reservations(self) -> tuple[Reservation, ...]:
        """Everybody who holds quota."""
        return tuple(
            Reservation(
                workload=item.workload, admission=item.admission, reserved_at=item.reserved_at, evicting=item.evicting
            )
            for item in self._world.items.values()
            if item.admission is not None
        )

    def usage(self) -> tuple[QueueUsage, ...]:
        """Per cluster queue, flavor and resource: nominal, used, borrowed, lent, and how many wait."""
        return queue_usage(self._world)

    def card_usage(self) -> tuple[CardUsage, ...]:
        """Per card: what is free, and the holders with their part."""
        return card_usage(self._world)

    def standings(self) -> tuple[Standing, ...]:
        """How many wait and how many hold, by local queue, cluster queue and reason."""
        return standings(self._world)

    def places(self) -> dict[WorkloadKey, bool]:
        """Every pending workload that is in a queue: True in the heap, False parked or set apart."""
        return {
            item.key: item.pile is not None and item.pile.active
            for queue in self._world.queues.values()
            for item in queue.pending.items()
        }

    def _copy(self, without: Iterable[WorkloadKey], waiting: Iterable[Item]) -> Engine:
        """The same policy, cards and holders (without some), and these waiting."""
        world = self._world
        gone = set(without)
        copy = Engine(world.policy, self.cards, self.options)
        copy._world.rights.inherit(world.rights)
        for item in world.holders():
            if item.key not in gone and item.admission is not None:
                copy.restore(item.workload, item.admission, reserved_at=item.reserved_at, evicting=item.evicting)
                copy._world.items[item.key].shrinking = dict(item.shrinking)
        for item in waiting:
            copy.add(item.workload, requeue_at=item.not_before)
        return copy

    def _trial(self, now: Instant) -> Trial:
        """Plays on copies; see `whatif`."""

        def trial(without: Iterable[WorkloadKey], waiting: Iterable[Workload]) -> Iterator[Plan]:
            copy = self._copy(without, ())
            for w in waiting:
                copy.add(w)
            return play(copy.cycle, copy.has_heads, now)

        return trial
