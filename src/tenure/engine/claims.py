"""Room kept for the big one: beyond Kueue, and off unless asked for.

Under BestEffortFIFO small work may slip past a big job for ever.  With `reserve_after_us`, the first in a queue's line
that has waited that long gets a claim: what comes after it (or borrows from other queues) may start only where that
takes nothing the claim is short of, or where it ends, by its own time limit, before the claim could begin (backfill).
"""

from __future__ import annotations

from dataclasses import dataclass

from tenure.domain.ids import Instant

from .entries import Entry
from .flavors import Mode
from .items import Item
from .preemption import Oracle
from .queues import Queue
from .quota import Usage
from .verdicts import judge
from .world import World

__all__ = ["Claim", "Claims"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What `item` waits for, and when it could begin if everybody kept to their time limits (None: no telling)."""

    item: Item
    queue: Queue
    usage: Usage
    begins: Instant | None


class Claims:
    """The claims of one cycle.  Looks at the tree and leaves it as it was."""

    def __init__(self, world: World, oracle: Oracle, now: Instant, *, after_us: int | None) -> None:
        self.world = world
        self.now = now
        self.found: list[Claim] = []
        if after_us is None:
            return
        for queue in world.queues.values():
            if queue.pending.strict or queue.barrier is not None or not len(queue.pending):
                continue
            first = queue.pending.first(1)[0]
            if first.not_before is None and now - first.ts >= after_us:
                claim = self._claim(queue, first, oracle)
                if claim is not None:
                    self.found.append(claim)

    def _claim(self, queue: Queue, item: Item, oracle: Oracle) -> Claim | None:
        a, targets = judge(self.world, item, oracle)
        if a.mode is not Mode.NO_CANDIDATES or targets:
            return None  # it fits, it preempts, or it can never be had
        return Claim(item, queue, a.request, self._begins(queue, a.request))

    def _begins(self, queue: Queue, usage: Usage) -> Instant | None:
        """When enough holders of this cohort tree have ended by their time limits."""
        ends = sorted(
            (max(self.now, c.reserved_at + c.workload.time_limit_us), c.key, c)
            for node in queue.node.root().queues()
            for c in self.world.queue_of[node].holders.values()
            if c.workload.time_limit_us is not None
        )
        gone: list[Item] = []
        begins: Instant | None = None
        for at, _, c in ends:
            assert c.queue is not None
            c.queue.node.remove_all(c.usage)
            gone.append(c)
            if queue.node.fits(usage):
                begins = Instant(at)
                break
        for c in gone:
            assert c.queue is not None
            c.queue.node.add_all(c.usage)
        return begins

    def against(self, e: Entry) -> Claim | None:
        """The claim in whose way this entry would be, if it were admitted now; None where there is none."""
        for claim in self.found:
            if claim.item is e.item or not self._concerns(claim, e):
                continue
            claim.queue.node.add_all(claim.usage)
            fits = e.queue.node.fits(e.assignment.usage)
            claim.queue.node.remove_all(claim.usage)
            if not fits and not self._backfills(claim, e):
                return claim
        return None

    def _concerns(self, claim: Claim, e: Entry) -> bool:
        if claim.queue is e.queue:
            return claim.item.rank < e.item.rank
        return e.assignment.level > 0 and claim.queue.node.root() is e.queue.node.root()

    def _backfills(self, claim: Claim, e: Entry) -> bool:
        limit = e.item.workload.time_limit_us
        return limit is not None and claim.begins is not None and self.now + limit <= claim.begins
