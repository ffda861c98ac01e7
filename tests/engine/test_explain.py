"""Why: blockers are complete, counterfactuals come true, and asking is quick in a long line."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from tenure.domain.amounts import GPU, GPU_MEMORY, parse_bytes
from tenure.domain.errors import NotFound
from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.plan import Plan
from tenure.domain.policy import AdmissionCheckRef, LabelSelector
from tenure.engine import Engine
from tenure.testing.lab import cards, policy, workload

_LAB: dict[str, Any] = {
    "priorities": {"training": 6000, "on-demand": 4000, "batch": 2000},
    "queues": {
        "general": {
            "cohort": "card", "owns": {"gpu": 8, "memory": "80Gi"}, "within": "LowerPriority", "reclaim": "LowerPriority",
        },
        "large-model": {"cohort": "card", "owns": {"gpu": 0, "memory": 0}, "borrows": {"gpu": 1}},
    },
}  # fmt: skip
_NOW = Instant(10)


def _engine(*jobs: dict[str, Any], card: bool = True) -> Engine:
    engine = Engine(policy(_LAB), cards([{"id": "gpu-0"}] if card else []))
    for at, raw in enumerate(jobs):
        engine.add(workload({"queue": "general", **raw}, at=Instant(at), priorities=_LAB["priorities"]))
        engine.cycle(Instant(at))
    return engine


def _settle(engine: Engine, now: Instant = _NOW) -> list[Plan]:
    plans: list[Plan] = []
    while engine.has_heads(now):
        plans.append(engine.cycle(now))
        decided = plans[-1].admits or plans[-1].preempts or plans[-1].shrinks
        if not decided and len(plans) > 1 and plans[-1].order == plans[-2].order:
            break
    return plans


def _admitted(engine: Engine) -> set[str]:
    return {str(r.workload.key) for r in engine.reservations()}


def test_the_blocker_names_numbers_holder_and_rule() -> None:
    engine = _engine(
        {"job": "model", "queue": "large-model", "priority": "on-demand", "gpu": 1, "memory": "60Gi"},
        {"job": "batch", "priority": "batch", "gpu": 1, "memory": "30Gi"},
    )
    explanation = engine.explain(WorkloadKey("batch"), _NOW)
    (blocker,) = explanation.blockers
    assert (blocker.kind, blocker.resource, blocker.flavor) == ("quota", GPU_MEMORY, "card")
    assert (blocker.asked, blocker.free) == (30 << 30, 20 << 30)
    (holder,) = blocker.held_by
    assert (holder.key, holder.amount, holder.preemptible) == ("model", 60 << 30, False)
    assert holder.because == "reclaimWithinCohort of general is LowerPriority: its priority 4000 is not below 2000"
    assert explanation.position == 0
    assert [(c.change, c.effect) for c in explanation.counterfactuals] == [
        ("when model ends", "it starts"),
        ("with 20 GiB of card memory instead of 30 GiB of card memory", "it would start now"),
        ("at priority training", "it would preempt model"),
    ]


def test_every_blocker_is_shown_not_the_first_alone() -> None:
    engine = _engine(
        {"job": "a", "gpu": 7, "memory": "1Gi", "priority": "training"},
        {"job": "b", "gpu": 1, "memory": "60Gi", "priority": "training"},
        {"job": "c", "gpu": 2, "memory": "40Gi"},
    )
    found = engine.explain(WorkloadKey("c"), _NOW).blockers
    assert [(b.resource, b.asked, b.free) for b in found] == [(GPU, 2, 0), (GPU_MEMORY, 40 << 30, 19 << 30)]
    assert {h.key for b in found for h in b.held_by} == {"a", "b"}


def test_more_than_there_is_and_a_queue_that_is_gone() -> None:
    engine = _engine({"job": "huge", "gpu": 9, "memory": "1Gi"}, {"job": "lost", "queue": "nowhere", "gpu": 1})
    limit, place = engine.explain(WorkloadKey("huge"), _NOW).blockers
    assert (limit.kind, limit.asked, limit.free) == ("limit", 9, 8)
    assert (place.kind, place.resource, place.asked, place.free) == ("placement", GPU, 9, 8)
    (queue,) = engine.explain(WorkloadKey("lost"), _NOW).blockers
    assert (queue.kind, queue.message) == ("queue", "LocalQueue nowhere doesn't exist")
    with pytest.raises(NotFound, match="no workload ghost"):
        engine.explain(WorkloadKey("ghost"), _NOW)


def test_short_of_quota_and_too_big_for_any_card_are_both_said() -> None:
    engine = Engine(policy(_LAB), cards([{"id": "gpu-0", "memory": "16Gi"}, {"id": "gpu-1", "memory": "24Gi"}]))
    for at, raw in enumerate([{"job": "a", "gpu": 8, "memory": "1Gi"}, {"job": "b", "gpu": 1, "memory": "30Gi"}]):
        engine.add(workload({"queue": "general", **raw}, at=Instant(at), priorities={}))
        _settle(engine)
    quota, place = engine.explain(WorkloadKey("b"), _NOW).blockers
    assert (quota.kind, [h.key for h in quota.held_by]) == ("quota", ["a"])
    assert (place.kind, place.resource, place.asked, place.free) == ("placement", GPU_MEMORY, 30 << 30, 24 << 30)
    assert "also when those have left who hold its quota" in place.message


def test_a_queue_that_takes_nobody_says_what_is_wrong_with_it() -> None:
    own: dict[str, Any] = {"owns": {"gpu": 8}}
    made = policy(
        {
            "queues": {
                "flavor": {"owns": {"card": {"gpu": 8}, "ghost": {"gpu": 8}}},
                "circle": {**own, "cohort": "a"},
                "check": own,
                "closed": own,
                "foreign": own,
            },
            "cohorts": {"a": {"parent": "b"}, "b": {"parent": "a"}},
            "missing_flavors": ["ghost"],
        }
    )
    queues = dict(made.cluster_queues)
    queues["check"] = replace(queues["check"], admission_checks=(AdmissionCheckRef(name="licence"),))
    queues["closed"] = replace(queues["closed"], namespace_selector=None)
    queues["foreign"] = replace(queues["foreign"], namespace_selector=LabelSelector(match_labels={"team": "x"}))
    engine = Engine(replace(made, cluster_queues=queues))
    for name in queues:
        engine.add(workload({"job": name, "queue": name, "gpu": 1}, at=Instant(0), priorities={}))
    engine.cycle(_NOW)
    told = {name: [(b.kind, b.message) for b in engine.explain(WorkloadKey(name), _NOW).blockers] for name in queues}
    takes = "takes no work of namespace default: its namespaceSelector"
    assert told == {
        "flavor": [("queue", "ClusterQueue flavor is inactive; references missing ResourceFlavor(s): ghost")],
        "circle": [("queue", "ClusterQueue circle is inactive; the parents of its cohort a go round in a circle")],
        "check": [("queue", "ClusterQueue check is inactive; references missing AdmissionCheck(s): licence")],
        "closed": [("queue", f"ClusterQueue closed {takes} is absent")],
        "foreign": [("queue", f"ClusterQueue foreign {takes} does not match the namespace's labels")],
    }


def test_where_nothing_is_short_the_turn_that_has_yet_to_come_is_named() -> None:
    """The first flavor is full of lower work, the second free, and the queue prefers to preempt."""
    queue = {
        "owns": {"f0": {"cpu": 4}, "f1": {"cpu": 4}},
        "within": "LowerPriority",
        "when_can_preempt": "MayStopSearch",
    }
    engine = Engine(policy({"queues": {"q": queue}}))
    for at, (job, priority) in enumerate([("low", 0), ("high", 1)]):
        raw = {"job": job, "queue": "q", "cpu": 4, "priority": priority}
        engine.add(workload(raw, at=Instant(at), priorities={}))
        if job == "low":
            _settle(engine)
    (turn,) = engine.explain(WorkloadKey("high"), _NOW).blockers
    assert (turn.kind, turn.message) == ("turn", "its next turn has yet to come; it would then preempt low")
    (plan, *_) = _settle(engine)
    assert [str(p.victim) for p in plan.preempts] == ["low"]


def test_every_resource_without_quota_is_named() -> None:
    engine = Engine(policy(_LAB))
    raw = {"job": "w", "queue": "general", "gpu": 1, "cpu": 2, "example.com/licence": 3, "count": 2}
    engine.add(workload(raw, at=Instant(0), priorities={}))
    found = engine.explain(WorkloadKey("w"), _NOW).blockers
    assert [(b.kind, b.resource, b.asked) for b in found] == [
        ("resource", "cpu", 4000),
        ("resource", "example.com/licence", 6),
    ]


def _life() -> Any:
    """The random life of test_long_life, whose states are the questions here."""
    name = "tests_engine_long_life"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "test_long_life.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Life


def _copy(life: Any, *, without: set[str], changed: dict[str, Any]) -> Engine:
    copy = Engine(life.engine.policy, life.engine.cards, life.engine.options)
    for r in life.engine.reservations():
        if r.workload.key not in without:
            copy.restore(r.workload, r.admission, reserved_at=r.reserved_at, evicting=r.evicting)
    held = {r.workload.key for r in life.engine.reservations()}
    for key in sorted(life.known.keys() - held):
        copy.add(changed.get(key, life.known[key]))
    return copy


def _check(life: Any, key: WorkloadKey, change: str, effect: str) -> str:
    """Apply one counterfactual to a copy with everybody in it; the kind that came true."""
    if ended := re.fullmatch(r"when (.+) (?:ends|have ended)", change):
        copy = _copy(life, without=set(ended[1].split(", ")), changed={})
        assert key in {a.key for p in _settle(copy, life.now) for a in p.admits}, (key, change)
        return "ends"
    w = life.known[key]
    if smaller := re.fullmatch(r"with (\S+)( \S+B of card memory| share\(s\)) instead of .*", change):
        memory = smaller[2].endswith("of card memory")
        amount = parse_bytes(smaller[1] + smaller[2].split()[0]) if memory else int(smaller[1])
        resource = GPU_MEMORY if memory else GPU
        (ps,) = w.pod_sets
        less = replace(w, pod_sets=(replace(ps, requests={**ps.requests, resource: amount}),))
        copy = _copy(life, without=set(), changed={key: less})
        assert key in {a.key for p in _settle(copy, life.now) for a in p.admits}, (key, change)
        return "smaller"
    raised = re.fullmatch(r"at priority p(\d)", change)
    assert raised is not None, change
    copy = _copy(life, without=set(), changed={key: replace(w, priority=int(raised[1]))})
    plans = _settle(copy, life.now)
    asked = ([str(p.victim) for p in (*plan.preempts, *plan.shrinks) if p.preemptor == key] for plan in plans)
    victims = next((set(v) for v in asked if v), set())
    wanted = effect.removeprefix("it would preempt ")
    if wanted == effect:
        assert key in {a.key for p in plans for a in p.admits}, (key, change)
    else:
        assert victims == set(wanted.split(", ")), (key, change, effect, victims)
    return "higher"


@pytest.mark.parametrize(("kind", "seed"), [("flat", 3), ("tree", 4), ("fair", 5)])
def test_what_would_help_helps_and_blockers_are_complete(kind: str, seed: int) -> None:
    life = _life()(kind, seed)
    checked: Counter[str] = Counter()
    for step in range(500):
        life.step()
        if step % 10 or life.engine.next_wakeup() is not None or life.shrinking:
            continue  # the copies below know nothing of backoffs and of gangs on their way down
        held = {r.workload.key for r in life.engine.reservations()}
        for key in sorted(life.known.keys() - held)[:2]:
            explanation = life.engine.explain(key, life.now)
            assert explanation.blockers or explanation.message
            for c in explanation.counterfactuals:
                checked[_check(life, key, c.change, c.effect)] += 1
            kinds = {b.kind for b in explanation.blockers}
            if kinds == {"quota"}:
                gone = {str(h.key) for b in explanation.blockers for h in b.held_by}
                copy = Engine(life.engine.policy, life.engine.cards, life.engine.options)
                for r in life.engine.reservations():
                    if r.workload.key not in gone:
                        copy.restore(r.workload, r.admission, reserved_at=r.reserved_at, evicting=r.evicting)
                copy.add(life.known[key])
                _settle(copy)
                assert key in _admitted(copy), (key, copy.status(key))
                checked["free"] += 1
    assert all(checked[kind] for kind in ("ends", "free", "smaller", "higher")), checked


def test_asking_for_the_last_of_ten_thousand_is_quick() -> None:
    engine = _engine({"job": "a", "gpu": 8, "memory": "1Gi", "priority": "training"})
    for n in range(10_000):
        raw = {"job": f"w{n}", "queue": "general", "gpu": 1 + n % 3, "memory": f"{1 + n % 41}Gi"}
        engine.add(workload(raw, at=Instant(n), priorities={}))
    _settle(engine)
    began = perf_counter()
    engine.cycle(_NOW)
    quiet = perf_counter() - began
    began = perf_counter()
    explanation = engine.explain(WorkloadKey("w9999"), _NOW)
    asked = perf_counter() - began
    assert explanation.position == 9999
    assert explanation.blockers
    assert quiet < 0.01  # measured: some microseconds
    assert asked < 1.0  # measured: 25 ms
