"""A random life of an engine, with the whole state checked after every step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.options import Ageing, LivelockRule
from tenure.domain.plan import Plan
from tenure.domain.policy import PreemptionPolicy
from tenure.domain.reasons import PreemptionReason
from tenure.domain.workload import Workload
from tenure.engine import Engine, EngineOptions
from tenure.engine.items import Item
from tenure.testing.engine_audit import audit, fingerprint
from tenure.testing.lab import cards, policy, workload

_PREEMPTION = st.sampled_from(["LowerPriority", "LowerOrNewerEqualPriority", "Never"])
_RECLAIM = st.sampled_from(["Any", "LowerPriority", "Never"])


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    queues: dict[str, Any] = {}
    for name in ("a", "b", "c"):
        owns = {"gpu": draw(st.sampled_from([4, 6, 2, 0])), "memory": f"{draw(st.sampled_from([40, 60, 10, 0]))}Gi"}
        cohort = draw(st.sampled_from(["top", "low", None]))
        raw: dict[str, Any] = {"owns": owns, "within": draw(_PREEMPTION), "weight": draw(st.sampled_from([0, 0.5, 1]))}
        raw["strategy"] = draw(st.sampled_from(["BestEffortFIFO", "StrictFIFO"]))
        raw["stop"] = draw(st.sampled_from(["None"] * 14 + ["Hold", "HoldAndDrain"]))
        if cohort:
            raw["cohort"] = cohort
            raw["reclaim"] = draw(_RECLAIM)
            if raw["reclaim"] != "Never":
                raw["while_borrowing"] = draw(st.sampled_from(["Never", "LowerPriority"]))
            if draw(st.integers(0, 2)) == 2:
                raw["borrows"] = {"gpu": draw(st.integers(0, 4))}
            if draw(st.integers(0, 2)) == 2:
                raw["lends"] = {"gpu": draw(st.integers(0, owns["gpu"]))}
        queues[name] = raw
    local: dict[str, Any] = {name: {} for name in "abc"}
    if draw(st.integers(0, 9)) == 9:
        del local[draw(st.sampled_from("abc"))]
    return {
        "queues": queues,
        "local": local,
        "cohorts": {"low": {"parent": "top"}, "top": {"owns": {"gpu": draw(st.integers(0, 3)), "memory": "8Gi"}}},
        "fair_sharing": draw(st.booleans()),
        "priorities": {"one": 1, "two": 2},
    }


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    count = draw(st.integers(1, 4))
    raw: dict[str, Any] = {"queue": draw(st.sampled_from("abc")), "priority": draw(st.integers(0, 2)), "count": count}
    if draw(st.booleans()):
        raw["min"] = draw(st.integers(1, count))
    if draw(st.integers(0, 9)):
        raw |= {"gpu": draw(st.sampled_from([1, 1, 2, 3, 0])), "memory": f"{draw(st.integers(1, 12))}Gi"}
    raw["whole_card"] = draw(st.sampled_from([False] * 6 + [True]))
    return raw


@st.composite
def beyond(draw: st.DrawFn) -> EngineOptions:
    """What goes beyond Kueue, off in half of the lives; time passes by single microseconds here."""
    if draw(st.booleans()):
        return EngineOptions()
    return EngineOptions(
        min_runtime_us=draw(st.sampled_from([0, 2, 5])),
        reserve_after_us=draw(st.sampled_from([None, 3])),
        ageing=draw(st.sampled_from([None, Ageing(every_us=2, most=2), Ageing(every_us=1, step=3, most=4)])),
        livelock=draw(st.sampled_from([None, LivelockRule(takes=2, within_us=10)])),
    )


class EngineLife(RuleBasedStateMachine):
    keys = Bundle("keys")

    @initialize(raw=policies(), shrink=st.booleans(), n=st.integers(0, 3), beyond=beyond())
    def start(self, raw: dict[str, Any], shrink: bool, n: int, beyond: EngineOptions) -> None:
        self.cards = cards([{"id": f"gpu-{k}", "shares": 6, "memory": "40Gi"} for k in range(n)])
        self.engine = Engine(policy(raw), self.cards, replace(beyond, shrink_gangs=shrink))
        self.now = Instant(1)
        self.number = 0
        self.known: dict[WorkloadKey, Workload] = {}
        self.leaving: set[WorkloadKey] = set()
        self.shrinking: dict[WorkloadKey, int] = {}

    @rule(target=keys, raw=jobs())
    def submit(self, raw: dict[str, Any]) -> WorkloadKey:
        return self._submit(raw)

    @rule(target=keys, raws=st.lists(jobs(), min_size=2, max_size=6))
    def submit_many_and_settle(self, raws: list[dict[str, Any]]) -> Any:
        added = [self._submit(raw) for raw in raws]
        self.settle()
        return multiple(*added)

    def _submit(self, raw: dict[str, Any]) -> WorkloadKey:
        self.number += 1
        w = workload({**raw, "job": f"w{self.number:03}"}, at=Instant(self.now + self.number), priorities={})
        self.known[w.key] = w
        self.engine.add(w)
        return w.key

    @rule(key=consumes(keys))
    def end_or_cancel(self, key: WorkloadKey) -> None:
        self.engine.remove(key)
        del self.known[key]
        self.leaving.discard(key)
        self.shrinking.pop(key, None)

    @rule(key=keys, priority=st.integers(0, 3))
    def reprioritise(self, key: WorkloadKey, priority: int) -> None:
        self.known[key] = replace(self.known[key], priority=priority)
        self.engine.update(self.known[key])

    @rule(key=keys)
    def evict(self, key: WorkloadKey) -> None:
        if any(r.workload.key == key for r in self.engine.reservations()):
            self.engine.evict(key)
            self.leaving.add(key)

    @precondition(lambda self: self.leaving)
    @rule(data=st.data(), wait=st.sampled_from([None, 5]))
    def has_left(self, data: st.DataObject, wait: int | None) -> None:
        key = data.draw(st.sampled_from(sorted(self.leaving)))
        self.leaving.discard(key)
        self.shrinking.pop(key, None)
        self.engine.released(key, at=self.now, requeue_at=None if wait is None else Instant(self.now + wait))

    @precondition(lambda self: self.shrinking)
    @rule(data=st.data())
    def has_shrunk(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.shrinking)))
        self.engine.resized(key, "main", self.shrinking.pop(key))

    @rule(key=keys, seconds=st.integers(1, 3))
    def back_off(self, key: WorkloadKey, seconds: int) -> None:
        self.engine.backoff(key, Instant(self.now + seconds))

    @precondition(lambda self: self.number % 3 == 0)
    @rule(raw=policies())
    def replace_policy(self, raw: dict[str, Any]) -> None:
        self.engine.replace_policy(policy(raw))

    @precondition(lambda self: self.cards)
    @rule(data=st.data())
    def drain_or_undrain(self, data: st.DataObject) -> None:
        """A card leaves the pool, with or without what runs there, or comes back."""
        n = data.draw(st.integers(0, len(self.cards) - 1))
        out = not self.cards[n].cordoned
        self.cards = tuple(replace(c, cordoned=out) if k == n else c for k, c in enumerate(self.cards))
        self.engine.replace_cards(self.cards)
        if out and data.draw(st.booleans()):
            for r in self.engine.reservations():
                if any(p.card == self.cards[n].id for p in r.admission.placements) and not r.evicting:
                    self.engine.evict(r.workload.key)
                    self.leaving.add(r.workload.key)

    @rule(key=keys)
    def explain(self, key: WorkloadKey) -> None:
        """Whoever waits has a blocker or is next; and asking changes nothing."""
        before = fingerprint(self.engine)
        explanation = self.engine.explain(key, self.now)
        assert fingerprint(self.engine) == before, "asking has changed the answer"
        if explanation.position is not None and not explanation.blockers:
            assert explanation.reason is not None
            assert explanation.message

    @rule()
    def restart(self) -> None:
        """Killed and started again: everybody who held quota holds it, everybody else waits."""
        held = self.engine.reservations()
        usage = self.engine.usage()
        self.engine = Engine(self.engine.policy, self.cards, self.engine.options)
        for r in held:
            self.engine.restore(r.workload, r.admission, reserved_at=r.reserved_at, evicting=r.evicting)
        for key in self.known.keys() - {r.workload.key for r in held}:
            self.engine.add(self.known[key])
        self.shrinking.clear()  # what was asked of a gang and not carried out is asked again
        assert [(u.used, u.lent) for u in usage] == [(u.used, u.lent) for u in self.engine.usage()]

    @rule()
    def cycle(self) -> None:
        self.now = Instant(self.now + 1)
        self._cycle()

    @precondition(lambda self: self.leaving)
    @rule()
    def all_have_left(self) -> None:
        for key in sorted(self.leaving):
            self.engine.released(key, at=self.now)
            self.shrinking.pop(key, None)
        self.leaving.clear()
        self.settle()

    @rule()
    def settle(self) -> None:
        """Without news from outside the engine comes to rest."""
        self.now = Instant(self.now + 1)
        before = None
        for _ in range(300):
            if not self.engine.has_heads(self.now):
                return
            plan = self._cycle()
            decided = bool(plan.admits or plan.preempts or plan.shrinks or plan.evicts)
            if not decided and plan.order == before:
                return
            before = None if decided else plan.order
        raise AssertionError("no rest")

    def _cycle(self) -> Plan:
        world = self.engine._world
        debts = {
            (n, i): min(0, q.node.raw_available(i)) for n, q in world.queues.items() for i in range(len(world.pairs))
        }
        items = dict(world.items)
        plan = self.engine.cycle(self.now)
        for (name, i), debt in debts.items():
            assert world.queues[name].node.raw_available(i) >= debt, f"{name} was admitted beyond its quota"
        out = {c.id for c in self.cards if c.cordoned}
        assert not any(p.card in out for a in plan.admits for p in a.admission.placements), (
            "placed on a card that is out"
        )
        for p in plan.preempts:
            victim, preemptor = items[p.victim], items[p.preemptor]
            assert victim.holds
            assert p.victim not in self.leaving, "asked to leave twice"
            self._has_a_right(victim, preemptor)
            rules = preemptor.queue.spec.preemption  # type: ignore[union-attr]
            same = victim.queue is preemptor.queue
            assert same is (p.reason is PreemptionReason.IN_CLUSTER_QUEUE)
            rule = rules.within_cluster_queue if same else rules.reclaim_within_cohort
            assert rule is not PreemptionPolicy.NEVER
            if rule is PreemptionPolicy.LOWER_PRIORITY:
                assert victim.priority < preemptor.priority
            self.leaving.add(p.victim)
        for e in plan.evicts:
            assert e.key not in self.leaving
            self.leaving.add(e.key)
        for s in plan.shrinks:
            ps = items[s.victim].workload.pod_sets[0]
            assert ps.min_count is not None
            assert s.count >= ps.min_count
            self.shrinking[s.victim] = min(s.count, self.shrinking.get(s.victim, s.count))
        return plan

    def _has_a_right(self, victim: Item, preemptor: Item) -> None:
        """Nobody is taken before its minimum runtime, or once more by one with whom it takes turns."""
        options = self.engine.options
        assert self.now - victim.reserved_at >= options.min_runtime_us
        rule = options.livelock
        if rule is not None:
            pair = frozenset((victim.key, preemptor.key))
            taken = [(at, by) for at, by in self.engine._world.rights.takes[pair] if self.now - at <= rule.within_us]
            assert len(taken[:-1]) < rule.takes or len({by for _, by in taken[:-1]}) < 2

    @invariant()
    def adds_up(self) -> None:
        if not hasattr(self, "engine"):
            return
        before = fingerprint(self.engine)
        audit(self.engine)
        for name in self.engine.policy.cluster_queues:
            assert len(set(self.engine.order(name))) == len(self.engine.order(name))
        usage = self.engine.usage()
        assert all(0 <= u.lent <= u.nominal for u in usage)
        assert fingerprint(self.engine) == before, "asking has changed the answer"


EngineLife.TestCase.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestEngineLife = EngineLife.TestCase
