"""Expected starts: a forward replay on a copy, honest where durations are unknown."""

from __future__ import annotations

from time import perf_counter

from tenure.domain.ids import Instant, WorkloadKey
from tenure.engine import Engine
from tenure.testing.engine_audit import fingerprint
from tenure.testing.lab import policy, workload

_MINUTE = 60_000_000


def _line(jobs: list[tuple[str, int, int]]) -> Engine:
    """Jobs by name, shares and priority, submitted one after the other into a queue of 8; the first round is taken."""
    engine = Engine(policy({"queues": {"q": {"owns": {"gpu": 8}, "within": "LowerPriority"}}}))
    for n, (job, gpu, priority) in enumerate(jobs):
        raw = {"job": job, "queue": "q", "gpu": gpu, "priority": priority}
        engine.add(workload(raw, at=Instant(n), priorities={}))
        _round(engine, Instant(n))
    return engine


def _round(engine: Engine, now: Instant) -> list[tuple[str, WorkloadKey]]:
    """Cycles to rest; victims leave at once.  Who began and who left, in order."""
    seen: list[tuple[str, WorkloadKey]] = []
    before = None
    while engine.has_heads(now):
        plan = engine.cycle(now)
        seen += [("began", a.key) for a in plan.admits]
        for p in plan.preempts:
            engine.released(p.victim, at=now)
            seen.append(("left", p.victim))
        if not plan.admits and not plan.preempts and plan.order == before:
            break
        before = plan.order
    return seen


def test_those_in_front_come_first() -> None:
    engine = _line([("a", 8, 0), ("b", 8, 0), ("c", 4, 0), ("d", 4, 0)])
    lasts = {WorkloadKey(k): n * _MINUTE for k, n in (("a", 5), ("b", 10), ("c", 1), ("d", 1))}
    before = fingerprint(engine)
    starts = {k: engine.forecast(WorkloadKey(k), Instant(0), lasts) for k in "bcd"}
    assert starts == {"b": 5 * _MINUTE, "c": 15 * _MINUTE, "d": 15 * _MINUTE}
    assert fingerprint(engine) == before


def test_nothing_is_promised_without_durations() -> None:
    engine = _line([("a", 8, 0), ("b", 8, 0)])
    assert engine.forecast(WorkloadKey("b"), Instant(0), {}) is None
    assert engine.forecast(WorkloadKey("a"), Instant(0), {}) is None  # it holds quota already
    assert engine.forecast(WorkloadKey("ghost"), Instant(0), {}) is None


def test_a_preemptor_starts_at_once_and_its_victim_begins_anew() -> None:
    engine = _line([("low", 8, 0)])
    engine.add(workload({"job": "high", "queue": "q", "gpu": 8, "priority": 5}, at=Instant(1), priorities={}))
    engine.add(workload({"job": "late", "queue": "q", "gpu": 8}, at=Instant(2), priorities={}))
    lasts = {WorkloadKey(k): n * _MINUTE for k, n in (("low", 7), ("high", 3), ("late", 1))}
    assert engine.forecast(WorkloadKey("high"), Instant(10), lasts) == 10
    assert engine.forecast(WorkloadKey("late"), Instant(10), lasts) == 10 + 10 * _MINUTE


def test_the_forecast_comes_true() -> None:
    jobs = [(f"w{n}", 1 + n * 5 % 7, n % 3) for n in range(30)]
    engine = _line(jobs)
    lasts = {WorkloadKey(job): (3 + n * 7 % 11) * _MINUTE for n, (job, _, _) in enumerate(jobs)}
    waiting = list(engine.order("q"))
    promised = {key: engine.forecast(key, Instant(0), lasts) for key in waiting}
    ends = {r.workload.key: lasts[r.workload.key] for r in engine.reservations()}
    now, began = 0, {}
    while set(waiting) - began.keys() and now < 10_000 * _MINUTE:
        for what, key in _round(engine, Instant(now)):
            if what == "began":
                began.setdefault(key, now)
                ends[key] = now + lasts[key]
            else:
                del ends[key]
        now = min(ends.values())
        for key in [k for k, at in ends.items() if at <= now]:
            del ends[key]
            engine.remove(key)
    assert all(began[key] == start for key, start in promised.items())


def test_the_ten_thousandth_is_told_within_a_second_or_not_at_all() -> None:
    engine = _line([("a", 8, 9)])
    for n in range(10_000):
        raw = {"job": f"w{n}", "queue": "q", "gpu": 1 + n % 8}
        engine.add(workload(raw, at=Instant(n), priorities={}))
    lasts = {WorkloadKey("a"): _MINUTE} | {WorkloadKey(f"w{n}"): _MINUTE for n in range(10_000)}
    began = perf_counter()
    engine.forecast(WorkloadKey("w9999"), Instant(0), lasts)
    assert perf_counter() - began < 5  # measured: below a second
