"""Virtual time: what the engine would have decided, had these workloads arrived then and run for so long.

Pure and deterministic.  Driven by events (arrivals, ends, cancellations, departures of the evicted); between two events
nothing happens.  At every instant at which something happened, cycles run until they come to rest; what a cycle evicts
leaves at once or after `evict_us`, and waits again with what is left of its runtime, or with all of it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum

from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.plan import Plan
from tenure.domain.policy import Policy
from tenure.domain.workload import Card

from .engine import Engine, EngineOptions
from .lives import Arrival, Life, Replay, ReplayOptions, Resume, Standing
from .sieve import Sieve

__all__ = ["replay"]


class _Kind(IntEnum):
    """At one instant: who ends or leaves makes room before who arrives is looked at."""

    FINISH = 0
    LEAVE = 1
    SHRINK = 2
    ARRIVE = 3
    CANCEL = 4


_Event = tuple[int, int, int, WorkloadKey, int, "Arrival | tuple[str, int] | None"]
"""When, in which order among those of one instant (by kind, unless cycles take time), in which order they were foreseen."""

_AS_IS = ReplayOptions()
_AGAIN = 3  # looks at the same heads without a decision in between
_RESTLESS = 100  # evictions within one instant, and four a workload: who takes turns for ever must let time go on


class _Player:
    def __init__(self, policy: Policy, cards: Sequence[Card], options: ReplayOptions, now: Instant) -> None:
        self.options = options
        self.engine = Engine(policy, cards, options.engine)
        plain = options.engine == EngineOptions(shrink_gangs=options.engine.shrink_gangs)
        self.sieve = (
            Sieve(self.engine._world, loose=options.loose) if options.spare and plain and not options.tick_us else None
        )
        self.now = now
        self.seq = 0
        self.events: list[_Event] = []
        self.kinds: dict[int, _Kind] = {}
        self.out = Replay(began=now, ended=now)

    # -- what is known at the beginning

    def stand(self, s: Standing) -> None:
        w = s.workload
        life = Life(workload=w, arrived=self.now, runtime_us=s.runtime_us, started=self.now, stood=True)
        life.cluster_queue, life.last_admitted, life.left_us = s.admission.cluster_queue, self.now, s.runtime_us
        life.holding, life.since, life.turn = s.admission, self.now, 1
        self.out.lives[w.key] = life
        self.engine.restore(w, s.admission, reserved_at=s.reserved_at, evicting=s.evicting)
        if s.runtime_us is not None:
            kind = _Kind.LEAVE if s.evicting and s.returns else _Kind.FINISH
            if kind is _Kind.LEAVE:
                life.left_us = None if s.again_us is None else s.again_us + s.runtime_us
            self._at(self.now + max(0, s.runtime_us), kind, w.key, 1)

    def expect(self, arrivals: Iterable[Arrival]) -> None:
        for a in arrivals:
            self._at(a.at, _Kind.ARRIVE, a.workload.key, 0, a)
            if a.cancelled_at is not None:
                self._at(max(a.at, a.cancelled_at), _Kind.CANCEL, a.workload.key, 0)

    def _at(
        self, at: int, kind: _Kind, key: WorkloadKey, turn: int, what: Arrival | tuple[str, int] | None = None
    ) -> None:
        self.seq += 1
        self.kinds[self.seq] = kind
        heapq.heappush(self.events, (at, 0 if self.options.tick_us else kind, self.seq, key, turn, what))

    # -- time goes by

    def play(self) -> Replay:
        options, engine, events, out = self.options, self.engine, self.events, self.out
        until = options.until
        while until is None or self.now <= until:
            while events and events[0][0] <= self.now:
                self._happen(heapq.heappop(events))
            if self._rest():
                break
            if options.tick_us and engine.has_heads(self.now):
                continue
            upcoming = [events[0][0]] if events else []
            alarm = engine.next_wakeup()
            if alarm is not None:
                upcoming.append(alarm)
            if not upcoming or (until is not None and min(upcoming) > until):
                break
            self.now = Instant(max(self.now, min(upcoming)))
        out.ended = self.now if until is None else max(self.now, until)
        for life in out.lives.values():
            if life.holding is not None:
                self._account(life, out.ended)
                life.since = out.ended
        return out

    def _rest(self) -> bool:
        """Cycles at this instant (or one, where a cycle takes time).  True when the replay is over."""
        options, engine, out = self.options, self.engine, self.out
        before: tuple[WorkloadKey, ...] | None = None
        seen: Counter[tuple[WorkloadKey, ...]] = Counter()
        gone = out.evictions
        while True:
            if not engine.has_heads(self.now) or (self.sieve is not None and self.sieve.settle()):
                return False
            plan = engine.cycle(self.now)
            out.cycles += 1
            self._carry_out(plan)
            if options.watch is not None and any(a.key == options.watch for a in plan.admits):
                return True
            if _reached(options.max_cycles, out.cycles) or _reached(options.max_admissions, out.admissions):
                out.cut = True
                return True
            if options.tick_us:
                self.now = Instant(self.now + options.tick_us)
                return False
            decided = bool(plan.admits or plan.preempts or plan.shrinks or plan.evicts)
            if decided:
                before, seen = None, Counter()
            else:
                seen[plan.order] += 1
                if plan.order == before or seen[plan.order] > _AGAIN:  # heads of several queues may take turns for ever
                    return False
                before = plan.order
            if plan.admits and out.evictions - gone > _RESTLESS + 4 * len(engine._world.items):
                out.unsettled += 1
                return False

    def _carry_out(self, plan: Plan) -> None:
        out, lives = self.out, self.out.lives
        for admit in plan.admits:
            life = lives[admit.key]
            life.turn += 1
            life.cluster_queue = admit.admission.cluster_queue
            life.holding, life.since, life.last_admitted = admit.admission, self.now, self.now
            if life.started is None:
                life.started = self.now
            out.admissions += 1
            out.order.append(admit.key)
            if life.left_us is not None:
                self._at(self.now + life.left_us, _Kind.FINISH, admit.key, life.turn)
        for preempt in sorted(plan.preempts, key=lambda p: p.victim):
            lives[preempt.victim].preempted += 1
            lives[preempt.preemptor].preempting += 1
            self._go(preempt.victim)
        for evict in plan.evicts:
            self._go(evict.key)
        for shrink in plan.shrinks:
            out.shrinks += 1
            what = (shrink.pod_set, shrink.count)
            if self.options.evict_us:
                turn = lives[shrink.victim].turn
                self._at(self.now + self.options.evict_us, _Kind.SHRINK, shrink.victim, turn, what)
            else:
                self._shrink(shrink.victim, what)

    def _go(self, key: WorkloadKey) -> None:
        self.out.evictions += 1
        self.out.lives[key].evicted += 1
        if self.options.evict_us:
            self._at(self.now + self.options.evict_us, _Kind.LEAVE, key, self.out.lives[key].turn)
        else:
            self._leave(key)

    # -- what happens

    def _happen(self, event: _Event) -> None:
        _, _, seq, key, turn, what = event
        life = self.out.lives.get(key)
        match self.kinds.pop(seq):
            case _Kind.ARRIVE:
                assert isinstance(what, Arrival)
                if life is None:
                    self._arrive(what)
            case _Kind.CANCEL:
                if life is not None and life.finished is None:
                    life.cancelled = True
                    self._end(life)
            case _Kind.FINISH:
                if life is not None and life.turn == turn and life.holding is not None:
                    life.finished = self.out.last_end = self.now
                    self._end(life)
            case _Kind.LEAVE:
                if life is not None and life.turn == turn and life.holding is not None:
                    self._leave(key)
            case _Kind.SHRINK:
                if life is not None and life.turn == turn and life.holding is not None:
                    assert isinstance(what, tuple)
                    self._shrink(key, what)

    def _arrive(self, a: Arrival) -> None:
        w = a.workload
        life = Life(workload=w, arrived=a.at, runtime_us=a.runtime_us, left_us=a.runtime_us)
        local = self.engine.policy.local_queues.get((w.namespace, w.queue))
        life.cluster_queue = local.cluster_queue if local is not None else None
        self.out.lives[w.key] = life
        self.engine.add(w, requeue_at=a.requeue_at)

    def _end(self, life: Life) -> None:
        if life.holding is not None:
            self._account(life, self.now)
            life.holding = None
        life.turn += 1
        self.engine.remove(life.workload.key)

    def _leave(self, key: WorkloadKey) -> None:
        life = self.out.lives[key]
        if life.left_us is not None and self.options.resume is Resume.REMAINING:
            life.left_us = max(0, life.left_us - (self.now - life.since))
        if life.holding is not None:
            self._account(life, self.now)
        life.holding = None
        life.turn += 1
        self.engine.released(key, at=self.now)

    def _shrink(self, key: WorkloadKey, what: tuple[str, int]) -> None:
        """It runs on with fewer processes and ends when it would have ended: nothing is known of its speed."""
        life = self.out.lives[key]
        self._account(life, self.now)
        if life.left_us is not None:
            life.left_us = max(0, life.left_us - (self.now - life.since))
        life.since = self.now
        self.engine.resized(key, *what)
        life.holding = self.engine._world.items[key].admission

    def _account(self, life: Life, to: Instant) -> None:
        if life.holding is None or to <= life.since:
            return
        for part in life.holding.assignments:
            for resource, amount in part.usage.items():
                if amount:
                    self.out.used[life.holding.cluster_queue, resource] += amount * (to - life.since)


def _reached(limit: int | None, count: int) -> bool:
    return limit is not None and count >= limit


def replay(
    policy: Policy,
    cards: Sequence[Card],
    arrivals: Iterable[Arrival],
    *,
    standing: Sequence[Standing] = (),
    now: Instant | None = None,
    options: ReplayOptions = _AS_IS,
) -> Replay:
    """Play it.  It begins at `now`, or with the first arrival; arrivals of one instant come in the order given."""
    expected = list(arrivals)
    start = now if now is not None else min((a.at for a in expected), default=Instant(0))
    player = _Player(policy, cards, options, Instant(start))
    for s in standing:
        player.stand(s)
    player.expect(expected)
    return player.play()
