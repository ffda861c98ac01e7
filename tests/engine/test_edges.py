"""Corners of a policy: defined, explained, no crash, and nothing leaks."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.domain.ids import Instant, WorkloadKey
from tenure.engine import Engine, EngineOptions
from tenure.testing.engine_audit import audit
from tenure.testing.lab import cards, policy, workload


def _settle(engine: Engine, now: int) -> list[str]:
    admitted: list[str] = []
    before = None
    for _ in range(200):
        if not engine.has_heads(Instant(now)):
            break
        plan = engine.cycle(Instant(now))
        admitted += [str(a.key) for a in plan.admits]
        for p in plan.preempts:
            engine.released(p.victim, at=Instant(now))
        decided = bool(plan.admits or plan.preempts or plan.evicts or plan.shrinks)
        if not decided and plan.order == before:
            break
        before = None if decided else plan.order
    else:
        raise AssertionError("no rest")
    audit(engine)
    return admitted


CASES: dict[str, dict[str, Any]] = {
    "zero weights": {
        "queues": {n: {"cohort": "c", "owns": {"gpu": 2}, "weight": 0, "reclaim": "Any"} for n in "ab"},
        "fair_sharing": True,
    },
    "zero nominal": {"queues": {"a": {"owns": {"gpu": 0}}, "b": {"cohort": "c", "owns": {"gpu": 0}, "reclaim": "Any"}}},
    "a flavor that is missing": {"queues": {"a": {"owns": {"gpu": 2}}, "b": {"owns": {"gpu": 2}}}, "missing_flavors": ["card"]},
    "a circle of cohorts": {
        "queues": {n: {"cohort": "x", "owns": {"gpu": 2}} for n in "ab"},
        "cohorts": {"x": {"parent": "y"}, "y": {"parent": "x"}},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("order", [1, -1])
def test_equal_times_and_priorities_everywhere(name: str, order: int) -> None:
    """All equal but for their names: the same outcome however they come, and everybody who waits knows why."""
    outcomes = []
    for turn in (order, -order):
        engine = Engine(policy(CASES[name]), cards([{"id": "x"}]))
        for job in [f"w{n}" for n in range(8)][::turn]:
            raw = {"job": job, "queue": "ab"[int(job[1]) % 2], "gpu": 1}
            engine.add(workload(raw, at=Instant(5), priorities={}))
        outcomes.append(sorted(_settle(engine, 6)))
        for queue in "ab":
            for key in engine.order(queue):
                told = engine.explain(key, Instant(7))
                assert told.message
                assert told.blockers
        for n in range(8):
            engine.remove(WorkloadKey(f"w{n}"))
        audit(engine)
        assert all(u.used == u.borrowed == u.lent == u.pending == 0 for u in engine.usage())
        assert [c.shares_free for c in engine.card_usage()] == [8]
    assert outcomes[0] == outcomes[1]


def test_a_queue_renamed_under_load_keeps_its_holders_and_takes_its_line_along() -> None:
    def named(queue: str) -> dict[str, Any]:
        return {"queues": {queue: {"owns": {"gpu": 2}}}, "local": {"team": {"cluster_queue": queue}}}

    engine = Engine(policy(named("old")))
    for n in range(4):
        engine.add(workload({"job": f"w{n}", "queue": "team", "gpu": 1}, at=Instant(n), priorities={}))
    assert _settle(engine, 5) == ["w0", "w1"]
    engine.replace_policy(policy(named("new")))
    assert [str(k) for k in engine.order("new")] == ["w2", "w3"]
    assert _settle(engine, 6) == ["w2", "w3"]  # what the old queue's holders have is not the new one's quota
    assert {str(r.workload.key) for r in engine.reservations()} == {"w0", "w1", "w2", "w3"}
    for n in range(4):
        engine.remove(WorkloadKey(f"w{n}"))
    audit(engine)
    assert [u.used for u in engine.usage()] == [0]


def test_quota_cut_below_use_is_told_and_heals_as_holders_end() -> None:
    engine = Engine(policy({"queues": {"q": {"owns": {"gpu": 4}}}}))
    for n in range(6):
        engine.add(workload({"job": f"w{n}", "queue": "q", "gpu": 1}, at=Instant(n), priorities={}))
    assert len(_settle(engine, 7)) == 4
    engine.replace_policy(policy({"queues": {"q": {"owns": {"gpu": 1}}}}))
    assert _settle(engine, 8) == []
    told = engine.explain(WorkloadKey("w4"), Instant(8))
    assert told.blockers[0].kind == "quota"
    for n in range(3):
        engine.remove(WorkloadKey(f"w{n}"))
        assert _settle(engine, 9 + n) == []
    engine.remove(WorkloadKey("w3"))
    assert _settle(engine, 20) == ["w4"]


@pytest.mark.parametrize("reserve", [True, False])
def test_a_big_job_against_an_endless_stream_of_small_ones(reserve: bool) -> None:
    """With the reservation it starts as soon as those who ran before it was due have ended; without, never."""
    options = EngineOptions(reserve_after_us=100 if reserve else None)
    engine = Engine(policy({"queues": {"q": {"owns": {"gpu": 8}}}}), options=options)
    engine.add(workload({"job": "big", "queue": "q", "gpu": 8}, at=Instant(15), priorities={}))
    lasts = 40
    ends: dict[str, int] = {}
    for now in range(0, 600, 5):
        for job in [j for j, at in ends.items() if at <= now]:
            engine.remove(WorkloadKey(job))
            del ends[job]
        engine.add(workload({"job": f"s{now}", "queue": "q", "gpu": 1}, at=Instant(now), priorities={}))
        if now == 0:
            engine.backoff(WorkloadKey("big"), Instant(15))
        for job in _settle(engine, now):
            if job == "big":
                assert reserve
                assert now <= 15 + 100 + lasts + 5
                return
            ends[job] = now + lasts
    assert not reserve


def test_under_strict_fifo_nothing_overtakes() -> None:
    engine = Engine(policy({"queues": {"q": {"owns": {"gpu": 8}, "strategy": "StrictFIFO"}}}))
    engine.add(workload({"job": "first", "queue": "q", "gpu": 1}, at=Instant(0), priorities={}))
    assert _settle(engine, 1) == ["first"]
    engine.add(workload({"job": "big", "queue": "q", "gpu": 8}, at=Instant(2), priorities={}))
    for n in range(50):
        engine.add(workload({"job": f"s{n}", "queue": "q", "gpu": 1}, at=Instant(3 + n), priorities={}))
        assert _settle(engine, 3 + n) == []
    engine.remove(WorkloadKey("first"))
    assert _settle(engine, 99) == ["big"]
