"""Promises of the engine that no single story shows."""

from __future__ import annotations

from tenure.domain.ids import Instant, WorkloadKey
from tenure.engine import Engine
from tenure.testing.lab import cards, policy, workload


def _policy(**queue: object) -> dict[str, object]:
    return {"queues": {"q": {"owns": {"gpu": 6}, **queue}}}


def test_every_higher_priority_starts_before_any_lower_one_oldest_first() -> None:
    engine = Engine(policy(_policy()))
    full = workload({"job": "full", "queue": "q", "gpu": 6}, at=Instant(0), priorities={})
    engine.add(full)
    engine.cycle(Instant(0))
    for n in range(12):
        raw = {"job": f"p{50 + n // 6}-{n % 6}", "queue": "q", "gpu": 6, "priority": 50 + n // 6}
        engine.add(workload(raw, at=Instant(n + 1), priorities={}))
    running, started = WorkloadKey("full"), []
    for minute in range(1, 13):
        now = Instant(minute * 60_000_000)
        while engine.has_heads(now):
            assert not engine.cycle(now).admits
        engine.remove(running)
        (admit,) = engine.cycle(now).admits
        running = admit.key
        started.append(str(running))
    assert started == [f"p51-{n}" for n in range(6)] + [f"p50-{n}" for n in range(6)]


def test_victims_are_needed() -> None:
    """Putting any one of them back breaks the fit."""
    engine = Engine(policy(_policy(within="LowerPriority")))
    for n, gpus in enumerate((1, 2, 1, 2)):
        engine.add(workload({"job": f"v{n}", "queue": "q", "gpu": gpus, "priority": n}, at=Instant(n), priorities={}))
        engine.cycle(Instant(n))
    engine.add(workload({"job": "big", "queue": "q", "gpu": 3, "priority": 9}, at=Instant(9), priorities={}))
    victims = {str(p.victim) for p in engine.cycle(Instant(9)).preempts}
    assert victims == {"v0", "v1"}
    for spared in victims:
        again = Engine(policy(_policy(within="LowerPriority")))
        for r in engine.reservations():
            if r.workload.key not in victims - {spared}:
                again.restore(r.workload, r.admission, reserved_at=r.reserved_at)
        again.add(workload({"job": "big", "queue": "q", "gpu": 3}, at=Instant(9), priorities={}))
        assert not again.cycle(Instant(10)).admits


def test_equal_work_is_parked_together_and_costs_one_look() -> None:
    engine = Engine(policy(_policy()))
    for n in range(500):
        engine.add(workload({"job": f"w{n}", "queue": "q", "gpu": 9}, at=Instant(n), priorities={}))
    assert engine.cycle(Instant(1)).order == ("w0",)
    assert not engine.has_heads(Instant(1))
    assert not engine.cycle(Instant(1)).order
    engine.add(workload({"job": "late", "queue": "q", "gpu": 9}, at=Instant(600), priorities={}))
    assert not engine.has_heads(Instant(1))
    status = engine.status(WorkloadKey("late"))
    assert status is not None
    assert status.reason == "ExceedsMaxQuota"


def test_updating_one_that_waits_moves_it_and_one_that_holds_keeps_its_quota() -> None:
    engine = Engine(policy(_policy()))
    for n in range(3):
        engine.add(workload({"job": f"w{n}", "queue": "q", "gpu": 6}, at=Instant(n), priorities={}))
    engine.update(workload({"job": "w2", "queue": "q", "gpu": 6, "priority": 5}, at=Instant(2), priorities={}))
    assert engine.order("q") == ("w2", "w0", "w1")
    assert [engine.position(WorkloadKey(key)) for key in ("w2", "w0", "w1", "ghost")] == [0, 1, 2, None]
    assert [a.key for a in engine.cycle(Instant(5)).admits] == ["w2"]
    engine.update(workload({"job": "w0", "queue": "q", "gpu": 6, "active": False}, at=Instant(0), priorities={}))
    status = engine.status(WorkloadKey("w0"))
    assert status is not None
    assert (status.reason, status.message) == ("Deactivated", "The workload is deactivated")
    engine.update(workload({"job": "w2", "queue": "q", "gpu": 6, "active": False}, at=Instant(2), priorities={}))
    (eviction,) = engine.cycle(Instant(6)).evicts
    assert (eviction.key, eviction.reason) == ("w2", "Deactivated")


def test_a_wakeup_is_known_and_forgotten_with_its_workload() -> None:
    engine = Engine(policy(_policy()))
    engine.add(workload({"job": "a", "queue": "q", "gpu": 1}, at=Instant(0), priorities={}), requeue_at=Instant(50))
    engine.add(workload({"job": "b", "queue": "q", "gpu": 1}, at=Instant(0), priorities={}), requeue_at=Instant(70))
    assert engine.next_wakeup() == 50
    engine.remove(WorkloadKey("a"))
    assert engine.next_wakeup() == 70
    engine.backoff(WorkloadKey("b"), None)
    assert engine.next_wakeup() is None
    assert [a.key for a in engine.cycle(Instant(1)).admits] == ["b"]


def test_a_process_goes_to_the_tightest_card_and_the_books_say_who_is_there() -> None:
    raw = {"queues": {"q": {"owns": {"gpu": 16, "memory": "160Gi"}}}}
    engine = Engine(policy(raw), cards([{"id": "x"}, {"id": "y", "shares": 4, "memory": "20Gi"}]))
    engine.add(workload({"job": "a", "queue": "q", "gpu": 2, "memory": "10Gi"}, at=Instant(0), priorities={}))
    engine.add(workload({"job": "b", "queue": "q", "gpu": 2, "memory": "15Gi"}, at=Instant(1), priorities={}))
    engine.cycle(Instant(1))
    engine.cycle(Instant(2))
    x, y = engine.card_usage()
    assert [(h.key, h.shares, h.memory) for h in y.holders] == [("a", 2, 10 << 30)]
    assert [(h.key, h.shares, h.memory) for h in x.holders] == [("b", 2, 15 << 30)]
    assert (x.shares_free, x.memory_free, y.shares_free, y.memory_free) == (6, 65 << 30, 2, 10 << 30)


def test_borrowed_and_lent_balance() -> None:
    queues = {n: {"cohort": "c", "owns": {"gpu": 4}} for n in "ab"} | {"z": {"cohort": "c", "owns": {"gpu": 0}}}
    engine = Engine(policy({"queues": queues}))
    for n, gpus in enumerate((3, 2)):
        engine.add(workload({"job": f"w{n}", "queue": "z", "gpu": gpus}, at=Instant(n), priorities={}))
        engine.cycle(Instant(n))
    usage = {u.cluster_queue: u for u in engine.usage()}
    assert usage["z"].borrowed == 5
    assert usage["a"].lent + usage["b"].lent == 5
