"""Rights beyond Kueue: ageing, the minimum runtime and the livelock rule, as promises."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.options import Ageing, EngineOptions, LivelockRule
from tenure.engine import Engine
from tenure.engine.lives import Arrival, ReplayOptions
from tenure.engine.replay import replay
from tenure.testing.engine_audit import audit
from tenure.testing.lab import policy, workload

Q = {"queues": {"q": {"owns": {"gpu": 1}, "within": "LowerPriority"}}}


def _add(engine: Engine, job: str, at: int, priority: int = 0) -> None:
    engine.add(workload({"job": job, "queue": "q", "gpu": 1, "priority": priority}, at=Instant(at), priorities={}))


def _settle(engine: Engine, now: int) -> list[str]:
    preempted: list[str] = []
    before = None
    for _ in range(50):
        if not engine.has_heads(Instant(now)):
            return preempted
        plan = engine.cycle(Instant(now))
        preempted += [str(p.victim) for p in plan.preempts]
        if not (plan.admits or plan.preempts) and plan.order == before:
            return preempted
        before = None if plan.admits or plan.preempts else plan.order
    raise AssertionError("no rest")


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), min_size=2, max_size=8),
    st.builds(Ageing, every_us=st.integers(1, 9), step=st.integers(1, 3), most=st.integers(1, 6)),
)
@settings(max_examples=60, deadline=None)
def test_waiting_never_lowers_a_chance_and_age_is_bounded(asked: list[tuple[int, int]], ageing: Ageing) -> None:
    """Of two that wait, the older of no lower priority stays first; no one passes a priority higher by more than the bound."""
    engine = Engine(policy(Q), options=EngineOptions(ageing=ageing))
    _add(engine, "full", 0, priority=99)
    _settle(engine, 0)
    born = {f"w{n}": (at, priority) for n, (at, priority) in enumerate(asked)}
    before: dict[tuple[str, str], bool] = {}
    for now in range(41, 90):
        if now == 41:
            for job, (at, priority) in born.items():
                _add(engine, job, at, priority)
        _settle(engine, now)
        audit(engine)
        line = [str(key) for key in engine.order("q")]
        place = {job: n for n, job in enumerate(line)}
        for a, (at_a, pa) in born.items():
            for b, (at_b, pb) in born.items():
                if at_a < at_b and pa >= pb:
                    assert place[a] < place[b]
                if pa > pb + ageing.most:
                    assert place[a] < place[b]
                if at_a < at_b:  # once the older is ahead it stays ahead: both age, it first
                    assert not before.get((a, b)) or place[a] < place[b] or pb > pa
                before[a, b] = place[a] < place[b]


def test_a_restart_gives_the_same_line() -> None:
    options = EngineOptions(ageing=Ageing(every_us=10, step=2, most=5))
    engine = Engine(policy(Q), options=options)
    jobs = [("a", 3, 0), ("b", 50, 3), ("c", 20, 1), ("d", 95, 4)]
    again = Engine(policy(Q), options=options)
    for e in (engine, again):
        _add(e, "full", 0, priority=99)
        e.cycle(Instant(1))
    for now in range(1, 100):
        for job in (job for job in jobs if job[1] == now):
            _add(engine, *job)
        _settle(engine, now)
    for job in reversed(jobs):
        _add(again, *job)
    _settle(again, 99)
    assert engine.order("q") == again.order("q")
    assert [str(k) for k in engine.order("q")] == ["b", "c", "a", "d"]


def test_the_end_of_a_protection_is_a_wakeup_of_its_own() -> None:
    engine = Engine(policy(Q), options=EngineOptions(min_runtime_us=100))
    _add(engine, "young", 0)
    _settle(engine, 10)
    _add(engine, "high", 20, priority=5)
    assert _settle(engine, 20) == []
    assert engine.next_wakeup() == 110
    assert _settle(engine, 109) == []
    assert _settle(engine, 110) == ["young"]
    assert engine.next_wakeup() is None


def test_a_restart_forgets_no_protection() -> None:
    engine = Engine(policy(Q), options=EngineOptions(min_runtime_us=100))
    _add(engine, "young", 0)
    _settle(engine, 10)
    (held,) = engine.reservations()
    again = Engine(policy(Q), options=engine.options)
    again.restore(held.workload, held.admission, reserved_at=held.reserved_at)
    _add(again, "high", 20, priority=5)
    assert _settle(again, 50) == []
    assert _settle(again, 110) == ["young"]


def test_one_that_takes_again_and_again_from_another_is_no_livelock() -> None:
    """Only taking turns is: a higher priority that comes and goes keeps its right."""
    engine = Engine(policy(Q), options=EngineOptions(livelock=LivelockRule(takes=2, within_us=10_000)))
    _add(engine, "low", 0)
    for turn in range(1, 20):
        _settle(engine, turn * 10)
        _add(engine, f"high-{turn % 2}", turn * 10 + 1, priority=5)
        assert _settle(engine, turn * 10 + 1) == ["low"]
        engine.released(WorkloadKey("low"), at=Instant(turn * 10 + 2))
        _settle(engine, turn * 10 + 2)
        engine.remove(WorkloadKey(f"high-{turn % 2}"))
    assert not engine._world.rights.takes  # those who have ended are forgotten


def test_options_come_and_go_with_the_policy() -> None:
    from dataclasses import replace

    plain = policy(Q)
    engine = Engine(replace(plain, engine_options=EngineOptions(ageing=Ageing(every_us=1, most=9))))
    _add(engine, "full", 0, priority=99)
    _settle(engine, 0)
    _add(engine, "old", 1)
    _add(engine, "new", 50, priority=3)
    _settle(engine, 52)
    assert [str(k) for k in engine.order("q")] == ["old", "new"]
    engine.replace_policy(plain)
    assert [str(k) for k in engine.order("q")] == ["new", "old"]
    assert engine.next_wakeup() is None
    audit(engine)


def test_a_replay_with_ageing_comes_to_its_end_where_somebody_waits_for_ever() -> None:
    raw = {"job": "never", "queue": "q", "gpu": 9, "priority": 0}
    never = workload(raw, at=Instant(1), priorities={})
    options = ReplayOptions(engine=EngineOptions(ageing=Ageing(every_us=5, most=4)))
    played = replay(
        policy(Q), (), [Arrival(at=Instant(1), workload=never, runtime_us=5)], now=Instant(0), options=options
    )
    assert played.lives[never.key].started is None
    assert played.ended <= 40
