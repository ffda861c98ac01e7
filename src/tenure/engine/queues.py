"""A cluster queue at work: what waits in it, and in which order that is looked at.

A workload is in exactly one place: the heap, the parked set, or (backing off, of a foreign namespace) set apart.
Workloads of equal form lie in one bucket, so that parking a form and moving everything back cost the number of forms,
not the number of workloads.  Order: the sticky one, higher priority, older, smaller uid.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from operator import attrgetter

from tenure.domain.ids import WorkloadKey
from tenure.domain.plan import Pend
from tenure.domain.policy import BorrowPolicy, ClusterQueue, PreemptionPolicy, QueueingStrategy
from tenure.domain.reasons import PendingReason

from .forms import Form
from .items import Item
from .quota import Node, Pair

__all__ = ["PendingQueue", "Pile", "Queue"]

_RANK = attrgetter("rank")


class Pile:
    """Workloads of one form, oldest first; `active` piles are in the heap, others parked.  Removal is lazy."""

    __slots__ = ("active", "entries", "live")

    def __init__(self, *, active: bool) -> None:
        self.entries: list[tuple[int, str, int, Item]] = []
        self.live = 0
        self.active = active

    def push(self, item: Item) -> None:
        item.pile = self
        self.live += 1
        heapq.heappush(self.entries, (item.ts, item.uid, item.seq, item))

    def head(self) -> Item | None:
        entries = self.entries
        while entries:
            item = entries[0][3]
            if item.pile is self:
                return item
            heapq.heappop(entries)
        return None

    def drop(self, item: Item) -> None:
        item.pile = None
        self.live -= 1
        if len(self.entries) > 2 * self.live + 32:
            self.entries = [e for e in self.entries if e[3].pile is self]
            heapq.heapify(self.entries)

    def items(self) -> Iterator[Item]:
        return (item for item in {e[2]: e[3] for e in self.entries}.values() if item.pile is self)

    def pour_into(self, other: Pile) -> None:
        for item in list(self.items()):
            item.pile = other
            heapq.heappush(other.entries, (item.ts, item.uid, item.seq, item))
        other.live += self.live
        self.entries, self.live = [], 0


class _Bucket:
    __slots__ = ("active", "announced", "form", "parked")

    def __init__(self, form: Form) -> None:
        self.form = form
        self.active = Pile(active=True)
        self.parked = Pile(active=False)
        self.announced: int | None = None

    def gather(self, *, active: bool) -> int:
        """Everything into one of the two piles, moving the smaller; returns how many changed sides."""
        source, goal = (self.parked, self.active) if active else (self.active, self.parked)
        moved = source.live
        if not moved:
            return 0
        if source.live > goal.live:
            source.active, goal.active = goal.active, source.active
            self.active, self.parked = self.parked, self.active
            source, goal = goal, source
        source.pour_into(goal)
        return moved


class PendingQueue:
    """`failed` holds the forms that could not be taken since the last move back, with the verdict on the one that was
    tried; newcomers like them are parked at once."""

    __slots__ = ("_buckets", "_heads", "_tick", "active", "apart", "failed", "parked", "sticky", "strict")

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self._buckets: dict[Form, _Bucket] = {}
        self._heads: list[tuple[int, int, str, int, int, _Bucket]] = []
        self._tick = 0
        self.active = 0
        self.parked = 0
        self.apart: dict[int, Item] = {}
        self.sticky: Item | None = None
        self.failed: dict[Form, Pend] = {}

    def __len__(self) -> int:
        return self.active + self.parked + len(self.apart)

    def arrive(self, item: Item) -> None:
        """A newcomer, or one that returns: into the heap, unless its like has just failed."""
        if not self.strict and item.form in self.failed:
            self.park(item)
        else:
            self.push(item)

    def push(self, item: Item) -> None:
        bucket = self._bucket(item.form)
        bucket.active.push(item)
        self.active += 1
        self._announce(bucket)

    def park(self, item: Item) -> None:
        self._bucket(item.form).parked.push(item)
        self.parked += 1

    def set_apart(self, item: Item) -> None:
        self.apart[item.seq] = item

    def remove(self, item: Item, *, popped: bool = False) -> None:
        """Leave the queue, wherever in it the item is.  Only a pop keeps the item's claim to be the sticky one."""
        if self.sticky is item and not popped:
            self.sticky = None
        if self.apart.pop(item.seq, None) is not None or item.pile is None:
            return
        pile = item.pile
        bucket = self._buckets[item.form]
        if pile.active:
            self.active -= 1
        else:
            self.parked -= 1
        pile.drop(item)
        if bucket.active.live + bucket.parked.live == 0:
            del self._buckets[item.form]
        elif pile.active:
            self._announce(bucket)

    def pop(self) -> Item | None:
        sticky = self.sticky
        if sticky is not None and sticky.pile is not None and sticky.pile.active:
            self.remove(sticky, popped=True)
            return sticky
        while self._heads:
            *_, seq, _, bucket = heapq.heappop(self._heads)
            if bucket.announced == seq:
                bucket.announced = None
            head = bucket.active.head()
            if head is None:
                continue
            if head.seq == seq:
                self.remove(head, popped=True)
                return head
            self._announce(bucket)
        return None

    def park_form(self, form: Form, verdict: Pend) -> None:
        """A workload of this form cannot be taken: its equals need not be tried until something changes."""
        self.failed[form] = verdict
        bucket = self._buckets.get(form)
        if bucket is not None:
            moved = bucket.gather(active=False)
            self.active -= moved
            self.parked += moved

    def move_back(self) -> None:
        """Something changed: everything parked is looked at again."""
        self.failed.clear()
        if not self.parked:
            return
        for bucket in self._buckets.values():
            moved = bucket.gather(active=True)
            if moved:
                self.active += moved
                self.parked -= moved
                self._announce(bucket)

    def items(self) -> Iterator[Item]:
        for bucket in self._buckets.values():
            yield from bucket.active.items()
            yield from bucket.parked.items()
        yield from self.apart.values()

    def in_order(self) -> list[Item]:
        line = sorted(self.items(), key=_RANK)
        if self.sticky is not None and self.sticky in line:
            line.remove(self.sticky)
            line.insert(0, self.sticky)
        return line

    def first(self, count: int) -> list[Item]:
        """The first few, by rank alone."""
        return heapq.nsmallest(count, self.items(), key=_RANK)

    def heads(self) -> list[Item]:
        """The first of each form, by rank: what one of them cannot have, its equals cannot either."""
        first = (
            min(heads, key=_RANK)
            for bucket in self._buckets.values()
            if (heads := [head for pile in (bucket.active, bucket.parked) if (head := pile.head()) is not None])
        )
        return sorted(first, key=_RANK)

    def _bucket(self, form: Form) -> _Bucket:
        bucket = self._buckets.get(form)
        if bucket is None:
            bucket = self._buckets[form] = _Bucket(form)
        return bucket

    def _announce(self, bucket: _Bucket) -> None:
        head = bucket.active.head()
        if head is not None and head.seq != bucket.announced:
            bucket.announced = head.seq
            self._tick += 1
            heapq.heappush(self._heads, (*head.rank, self._tick, bucket))

    def reorder(self) -> None:
        """Ranks have changed, for all at once and never so that a younger one of equal form passes an older one."""
        self._heads.clear()
        for bucket in self._buckets.values():
            bucket.announced = None
            self._announce(bucket)

    def position(self, item: Item) -> int:
        """How many come before it, parked or not."""
        if item is self.sticky:
            return 0
        rank = item.rank
        return sum(1 for other in self.items() if other is self.sticky or other.rank < rank)


class Queue:
    """A cluster queue at work.  `barrier` says in Kueue's words why it takes nobody, or is None."""

    __slots__ = (
        "barrier", "generation", "holders", "index", "node", "pending", "preempts", "reclaims", "spec", "while_borrowing",
    )  # fmt: skip

    def __init__(
        self,
        spec: ClusterQueue,
        node: Node,
        index: Mapping[Pair, int],
        barrier: tuple[PendingReason, str] | None,
        *,
        fair: bool,
    ) -> None:
        self.spec = spec
        self.node = node
        self.index = index
        self.barrier = barrier
        self.pending = PendingQueue(strict=spec.queueing_strategy is QueueingStrategy.STRICT_FIFO)
        self.holders: dict[WorkloadKey, Item] = {}
        self.generation = 0
        self.reclaims = spec.preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER
        self.preempts = spec.preemption.within_cluster_queue is not PreemptionPolicy.NEVER or (
            self.reclaims and node.parent is not None
        )
        self.while_borrowing = spec.preemption.borrow_within_cohort.policy is not BorrowPolicy.NEVER or (
            fair and self.reclaims
        )
