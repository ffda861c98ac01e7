"""The expected start of one that waits: a forward replay of the engine, twice, and the sentence that says from what.

`situation` copies what matters out of a live engine, cheaply, so that the caller may let go of it; `expect` replays
from the copy.  Once everything lasts as long as half of its earlier runs did (or its time limit), once as long as nine
in ten.  What nobody knows is not guessed: where the start hangs on a job with neither limit nor history there is no
answer, and the reason names that job.  Nobody new arrives in the replay.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.plan import Pend
from tenure.domain.policy import Policy, QueueingStrategy
from tenure.domain.reasons import PendingReason
from tenure.domain.workload import Card, Workload

from .cards import NoPlace
from .engine import Engine, EngineOptions, Reservation
from .items import Item
from .lives import Arrival, Life, Replay, ReplayOptions, Standing
from .nomination import eligible_places
from .queues import Queue
from .replay import replay
from .world import World

__all__ = ["Expectation", "Lasting", "Situation", "expect", "quantile", "situation"]

LINE = 2000  # so many ahead of it in its own queue are replayed one by one
SAMPLE = 1000  # of a longer line about so many are replayed, every k-th, and time is taken k times
BEHIND = 300  # who waits behind it and could slip past
MAX_CYCLES = 8000


# No end of another job changes these.
_FOR_GOOD = frozenset({PendingReason.EXCEEDS_MAX_QUOTA, PendingReason.NO_MATCHING_FLAVOR, PendingReason.MISCONFIGURED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """What is known of how long a workload lasts, in microseconds.  `runs` are ended runs of the same name, sorted.

    `ran_us`: how long a holder runs already.  `grace_us`: how long one that was asked to leave may take at most;
    `returns`: it will be queued again.
    """

    name: str = ""
    limit_us: int | None = None
    runs: tuple[int, ...] = ()
    ran_us: int = 0
    grace_us: int = 0
    returns: bool = True

    def left_us(self, q: float) -> int | None:
        """What is left of it, at this quantile.  Runs that were shorter than it ran already say nothing any more."""
        longer = [run for run in self.runs if run > self.ran_us] if self.ran_us else self.runs
        left: int | None = None
        if longer:
            left = quantile(longer, q) - self.ran_us
        elif self.runs:  # longer than ever before: it may end at any moment, or take as long again
            left = self.ran_us // 10 if q <= 0.5 else self.ran_us
        if self.limit_us is not None:
            until_limit = max(0, self.limit_us - self.ran_us)
            left = until_limit if left is None else min(left, until_limit)
        return left


def quantile(ordered: Sequence[int], q: float) -> int:
    """The smallest value that at least this part of them does not exceed."""
    rank = -(-len(ordered) * round(q * 1000) // 1000)
    return ordered[min(len(ordered), max(1, rank)) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A copy of what could matter to `key`: its cohort tree, and whoever shares cards with it.

    `waiting` is in the order in which it came.  In a long line it is every `step`-th of each queue; the others ahead of
    it are `rest`.
    """

    key: WorkloadKey
    cluster_queue: str
    now: Instant
    policy: Policy
    cards: tuple[Card, ...]
    options: EngineOptions
    holders: tuple[Reservation, ...]
    waiting: tuple[tuple[Workload, Instant | None], ...]
    step: int
    rest: tuple[Workload, ...]
    verdict: Pend | None

    def everybody(self) -> list[WorkloadKey]:
        """Everybody whose runtime may be asked for."""
        return [r.workload.key for r in self.holders] + [w.key for w, _ in self.waiting] + [w.key for w in self.rest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """Either both instants and what they stand on, or neither and why."""

    p50: Instant | None = None
    p90: Instant | None = None
    basis: str = ""
    reason: str = ""


def situation(engine: Engine, key: WorkloadKey, now: Instant) -> Situation | str:
    """The copy, or the reason why there can be no expectation.  Costs a millisecond for thousands that wait."""
    world = engine._world
    item = world.items.get(key)
    if item is None or item.holds:
        return "it does not wait in a queue of the engine"
    pend = engine.status(key)
    if item.queue is None or item.queue.barrier is not None:
        return f"nothing can start there: {pend.message}" if pend else "its queue takes nobody"
    if pend is not None and pend.reason in _FOR_GOOD:
        return f"as things are it never starts: {pend.message}"
    if (place := _nowhere(world, item)) is not None:
        return f"as things are it never starts: {place.message}, were they all empty"
    queues = _concerned(world, item.queue)
    names = {q.spec.name for q in queues}
    line, rest, step = _line(item)
    others = [i for q in queues if q is not item.queue for i in _every(step, q.pending.items())]
    waiting = sorted((*line, *others), key=attrgetter("seq"))
    return Situation(
        key=key,
        cluster_queue=item.queue.spec.name,
        now=now,
        policy=replace(
            world.policy,
            cluster_queues={n: q for n, q in world.policy.cluster_queues.items() if n in names},
            local_queues={n: q for n, q in world.policy.local_queues.items() if q.cluster_queue in names},
        ),
        cards=engine.cards,
        options=engine.options,
        holders=tuple(r for r in engine.reservations() if r.admission.cluster_queue in names or r.admission.placements),
        waiting=tuple((i.workload, i.not_before) for i in waiting),
        step=step,
        rest=tuple(i.workload for i in rest),
        verdict=pend,
    )


def _nowhere(world: World, item: Item) -> NoPlace | None:
    """Why no card would take it even if nobody held any; None where one would."""
    assert item.queue is not None
    if not world.cards.known:
        return None
    everybody = list(world.cards.held.values())
    outcomes = [world.cards.place(r, without=everybody) for r in eligible_places(world, item, item.queue)]
    barred = [outcome for outcome in outcomes if isinstance(outcome, NoPlace)]
    return barred[0] if barred and len(barred) == len(outcomes) else None


def _concerned(world: World, queue: Queue) -> list[Queue]:
    """The queues of its tree; where there are cards, also the trees that put work on the same ones."""
    trees = [[world.queue_of[node] for node in root.queues()] for root in world.tree.roots]
    mine = next(tree for tree in trees if queue in tree)
    found = list(mine)
    if world.cards.known:
        others = [tree for tree in trees if tree is not mine]
        placed = {c.flavor for c in world.cards.cards.values()}
        flavors = _flavors(mine) & placed
        while reached := [tree for tree in others if _flavors(tree) & flavors]:
            for tree in reached:
                found += tree
                flavors |= _flavors(tree) & placed
            others = [tree for tree in others if tree not in reached]
    return found


def _flavors(tree: list[Queue]) -> set[str]:
    return {f.flavor for queue in tree for group in queue.spec.resource_groups for f in group.flavors}


def _line(item: Item) -> tuple[list[Item], list[Item], int]:
    """Who of its queue is replayed; who ahead of it is not; and what part of them that is."""
    queue = item.queue
    assert queue is not None
    everybody = list(queue.pending.items())
    ahead = [i for i in everybody if i.rank < item.rank or i is queue.pending.sticky]
    behind: list[Item] = []
    if queue.spec.queueing_strategy is not QueueingStrategy.STRICT_FIFO:
        behind = heapq.nsmallest(BEHIND, (i for i in everybody if i.rank > item.rank), key=attrgetter("rank"))
    own = [] if item in ahead else [item]
    if len(ahead) <= LINE:
        return [*ahead, *own, *behind], [], 1
    step = -(-len(ahead) // SAMPLE)
    sampled = _every(step, ahead)
    taken = {i.seq for i in sampled}
    return [*sampled, *own, *_every(step, behind)], [i for i in ahead if i.seq not in taken], step


def _every(step: int, items: Iterable[Item]) -> list[Item]:
    """Every so manieth in line."""
    return list(items) if step == 1 else sorted(items, key=attrgetter("rank"))[::step]


def expect(s: Situation, lasting: Mapping[WorkloadKey, Lasting]) -> Expectation:
    """Replay it.  Deterministic; pure; p50 never comes after p90."""
    half = _forward(s, lasting, 0.5)
    if isinstance(half, str):
        return Expectation(reason=half)
    nine = _forward(s, lasting, 0.9)
    if isinstance(nine, str):
        return Expectation(reason=nine)
    return Expectation(
        p50=min(half.start, nine.start), p90=max(half.start, nine.start), basis=_basis(s, half.replay, lasting)
    )


@dataclass(slots=True)
class _Forward:
    start: Instant
    replay: Replay


def _forward(s: Situation, lasting: Mapping[WorkloadKey, Lasting], q: float) -> _Forward | str:
    def lasts(key: WorkloadKey) -> int | None:
        known = lasting.get(key)
        return known.left_us(q) if known is not None else None

    standing = [_standing(r, lasting.get(r.workload.key, Lasting()), q) for r in s.holders]
    arrivals = [Arrival(workload=w, at=s.now, runtime_us=lasts(w.key), requeue_at=after) for w, after in s.waiting]
    unknown = next((w for w in s.rest if lasts(w.key) is None), None)
    if unknown is not None:
        return _unknown(unknown)
    options = ReplayOptions(watch=s.key, max_cycles=MAX_CYCLES, loose=True, engine=s.options)
    played = replay(s.policy, s.cards, arrivals, standing=standing, now=s.now, options=options)
    life = played.lives.get(s.key)
    if life is not None and life.started is not None:
        return _Forward(_stretched(s, played, life.started), played)
    if played.cut:
        return "too much happens before it to be replayed in a second"
    return _why_not(s, played)


def _stretched(s: Situation, played: Replay, start: Instant) -> Instant:
    """What a part of the line takes, the whole takes so many times; but not until the first of it starts."""
    if s.step == 1:
        return start
    first = min(life.started for life in played.lives.values() if life.started is not None and not life.stood)
    return Instant(first + (start - first) * s.step)


def _standing(r: Reservation, known: Lasting, q: float) -> Standing:
    if not r.evicting:
        left = known.left_us(q)
        return Standing(workload=r.workload, admission=r.admission, reserved_at=r.reserved_at, runtime_us=left)
    return Standing(
        workload=r.workload,
        admission=r.admission,
        reserved_at=r.reserved_at,
        runtime_us=0 if q <= 0.5 else known.grace_us,
        evicting=True,
        returns=known.returns,
        again_us=known.left_us(q),
    )


def _why_not(s: Situation, played: Replay) -> str:
    """It never starts in the replay: whose end nobody knows, or what is in its way for good."""
    endless = [life for life in played.lives.values() if life.holding is not None and life.left_us is None]
    if endless:
        endless.sort(key=lambda life: (not life.stood, life.last_admitted or 0, life.workload.key))
        return _unknown(endless[0].workload, more=len(endless) - 1)
    if s.verdict is not None and s.verdict.message:
        return f"as things are it never starts: {s.verdict.message}"
    return "as things are it never starts"


def _unknown(w: Workload, *, more: int = 0) -> str:
    also = f" (nor have {more} more)" if more else ""
    return f"job {w.key}, which comes before it, has neither a time limit nor a history of ended runs{also}"


def _basis(s: Situation, played: Replay, lasting: Mapping[WorkloadKey, Lasting]) -> str:
    """From whose time limits, and from which histories."""
    used = [life for life in played.lives.values() if _counted(life, s)]
    known = [lasting[k] for k in (*(life.workload.key for life in used), *(w.key for w in s.rest)) if k in lasting]
    limits = sum(1 for k in known if k.limit_us is not None and not k.runs)
    names = Counter({k.name: len(k.runs) for k in known if k.runs})
    parts = [f"time limits of {limits} job{'s' if limits != 1 else ''}"] if limits else []
    if names:
        shown = [f'{n} run{"s" if n != 1 else ""} of "{name}"' for name, n in names.most_common(3)]
        more = f" and of {len(names) - 3} more names" if len(names) > 3 else ""
        parts.append(f"the history of {', '.join(shown)}{more}")
    text = " and ".join(parts) or "the engine alone: nobody has to end before it"
    if s.step > 1:
        text += f"; of the long line one in {s.step} was replayed"
    return text


def _counted(life: Life, s: Situation) -> bool:
    return life.started is not None and life.workload.key != s.key
