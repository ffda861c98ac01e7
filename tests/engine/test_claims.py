"""Room kept for the big one, where that is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.workload import Workload
from tenure.engine import Engine, EngineOptions
from tenure.testing.engine_audit import audit
from tenure.testing.lab import policy, workload

_MINUTE = 60_000_000


def _job(name: str, gpu: int, at: int, *, minutes: int | None = None, priority: int = 0) -> Workload:
    w = workload({"job": name, "queue": "q", "gpu": gpu, "priority": priority}, at=Instant(at), priorities={})
    return replace(w, time_limit_us=None if minutes is None else minutes * _MINUTE)


def _engine(after_minutes: int | None) -> Engine:
    after = None if after_minutes is None else after_minutes * _MINUTE
    return Engine(policy({"queues": {"q": {"owns": {"gpu": 8}}}}), options=EngineOptions(reserve_after_us=after))


def _settle(engine: Engine, now: int) -> list[str]:
    admitted: list[str] = []
    while engine.has_heads(Instant(now)):
        admitted += [str(a.key) for a in engine.cycle(Instant(now)).admits]
        audit(engine)
    return admitted


@pytest.mark.parametrize(("bound", "starts"), [(10, True), (None, False)])
def test_a_big_job_against_an_endless_stream_of_small_ones(bound: int | None, starts: bool) -> None:
    """Every minute two one-share jobs arrive, and each runs four minutes."""
    engine = _engine(bound)
    ends: dict[str, int] = {}
    started_at = None
    for minute in range(40):
        now = minute * _MINUTE
        for key in [k for k, at in ends.items() if at <= now]:
            engine.remove(WorkloadKey(key))
            del ends[key]
        for n in range(2):
            engine.add(_job(f"s{minute:02}-{n}", 1, now + n))
        if minute == 8:
            engine.add(_job("big", 8, now))
        for key in _settle(engine, now):
            ends[key] = now + 4 * _MINUTE
            if key == "big":
                started_at = minute
    assert (started_at is not None) is starts
    if started_at is not None:
        assert started_at <= 8 + 10 + 4  # its bound, and the runtime of what ran before


def test_short_work_backfills_and_long_work_does_not() -> None:
    engine = _engine(10)
    engine.add(_job("running", 6, 0, minutes=60))
    assert _settle(engine, 0) == ["running"]
    engine.add(_job("big", 8, 1))
    assert _settle(engine, _MINUTE) == []
    now = 20 * _MINUTE
    engine.add(_job("long", 1, 2, minutes=120))
    engine.add(_job("endless", 1, 3))
    engine.add(_job("short", 1, 4, minutes=30))
    engine.add(_job("urgent", 1, 5, minutes=40, priority=1))
    assert _settle(engine, now) == ["urgent", "short"]
    status = engine.status(WorkloadKey("long"))
    assert status is not None
    assert status.message == "Room is kept for big, which has waited since 1970-01-01T00:00:00Z"
    for key in ("running", "urgent", "short"):
        engine.remove(WorkloadKey(key))
    assert _settle(engine, now + 1) == ["big"]


def test_nobody_keeps_room_for_what_can_never_be() -> None:
    engine = _engine(0)
    engine.add(_job("impossible", 9, 0))
    engine.add(_job("small", 1, 1))
    assert _settle(engine, 10 * _MINUTE) == ["small"]
