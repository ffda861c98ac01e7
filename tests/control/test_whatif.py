"""Expected starts of a real platform, and replays of what it really did."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest

from tenure.control import views
from tenure.control.clock import from_wire
from tenure.control.traffic import from_ledger
from tenure.control.views import expected
from tenure.control.whatif import replayed
from tenure.domain.ids import Instant, WorkloadKey
from tenure.engine.expectation import expect


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_an_expected_start_comes_from_time_limits(house: Any) -> None:
    whole = house.gpu("sleep", "60", shares=8, name="holder", time="10m")
    house.wait(whole, "running")
    house.gpu("sleep", "60", shares=8, name="next", time="20m")
    last = house.gpu("true", shares=1, name="last")
    house.wait_reason(last, "WaitingForQuota")
    found = views.why(house.platform, last)["expected_start"]
    assert found["basis"] == "time limits of 2 jobs"
    assert found["p50"] == found["p90"]
    assert 1790 < at(found["p50"]) - time.time() <= 1801


def test_an_expected_start_comes_from_the_history_of_the_name(house: Any) -> None:
    for _ in range(3):
        house.wait(house.gpu("sleep", "0.2", name="train"))
    house.wait(house.gpu("sleep", "60", shares=8, name="train"), "running")
    waits = house.gpu("true", name="other")
    house.wait_reason(waits, "WaitingForQuota")
    found = views.why(house.platform, waits)["expected_start"]
    assert found["basis"] == 'the history of 3 runs of "train"'
    assert abs(at(found["p50"]) - time.time()) < 10
    assert found["p50"] <= found["p90"]


def test_what_nobody_knows_is_said_not_guessed(house: Any) -> None:
    holder = house.gpu("sleep", "60", shares=8, name="endless")
    house.wait(holder, "running")
    waits = house.gpu("true")
    house.wait_reason(waits, "WaitingForQuota")
    said = views.why(house.platform, waits)
    assert said["expected_start"] is None
    assert said["expected_start_reason"] == (
        f"job {holder}, which comes before it, has neither a time limit nor a history of ended runs"
    )
    held = house.gpu("true", hold=True)
    assert views.why(house.platform, held)["expected_start_reason"].startswith("it is not in line yet: ")
    assert views.why(house.platform, holder)["expected_start_reason"] is None
    assert views.why(house.platform, waits, forecast=False)["expected_start_reason"] is None


def test_a_replay_of_what_happened_takes_the_same_order(house: Any) -> None:
    """Jobs of several sizes and priorities behind a full card: who starts in which order is the engine's decision."""
    shut = house.gate()
    gate = house.gpu(*shut.argv(), shares=8, priority="training", name="gate")
    house.wait(gate, "running")
    sizes = [(8, "training"), (5, "batch"), (8, "on-demand"), (3, "batch"), (8, "batch"), (8, "training")]
    jobs = [house.gpu("sleep", "0.3", shares=n, priority=p, name="x") for n, p in sizes]
    shut.open()
    for job in jobs:
        house.wait(job)
    really = sorted(jobs, key=lambda job: (house.show(job)["admitted_at"], int(job)))
    platform = house.platform
    now = platform.clock.now()
    traffic = from_ledger(platform.ledger, platform.specs, since=Instant(now - 3_600_000_000), now=now)
    played, missing = replayed(platform.policy.current, platform.cards, traffic)
    assert missing == []
    assert traffic.notes == []
    assert [str(key) for key in played.order] == [gate, *really]
    first = house.show(gate)
    opened = at(first["submitted_at"]) + at(first["ended_at"]) - at(first["started_at"])
    for job in really:
        life = played.lives[WorkloadKey(job)]
        assert life.started is not None
        # never later than it really was: a replay spends no time on starting processes
        assert opened - 0.001 <= life.started / 1e6 <= at(house.show(job)["started_at"]) + 0.001
    found = views.try_policy(platform, [["now.yaml", views.policy(platform)["yaml"]]], since_s=3600)
    assert found["before"] == found["after"]
    assert found["fidelity"]["compared"] == len(jobs) + 1


def test_the_preempted_and_the_running_are_replayed_with_what_is_known_of_them(house: Any) -> None:
    low = house.gpu("sleep", "60", shares=8, priority="batch", name="low")
    house.wait(low, "running")
    high = house.gpu("sleep", "0.3", shares=8, priority="training", name="high")
    house.wait(high)
    house.wait(low, "running")  # again: its second attempt
    unknown = house.gpu("true", shares=8, priority="batch", name="never-seen")
    house.wait_reason(unknown, "WaitingForQuota")
    platform = house.platform
    now = platform.clock.now()
    traffic = from_ledger(platform.ledger, platform.specs, since=Instant(now - 3_600_000_000), now=now)
    lasts = {past.id: past.runtime_us for past in traffic.jobs}
    assert lasts[low] is None
    ran = house.show(high)["attempts"][0]
    assert lasts[high] == from_wire(ran["ended_at"]) - from_wire(ran["started_at"])
    assert traffic.notes == [
        "1 job still running with neither a time limit nor a history: without an end in the replay",
        "1 job waiting with neither a time limit nor a history: without an end once started",
    ]
    played, _ = replayed(platform.policy.current, platform.cards, traffic)
    assert played.lives[WorkloadKey(low)].preempted == 1
    assert played.lives[WorkloadKey(unknown)].started is None


def test_the_forecast_of_a_long_line_leaves_the_lock_alone(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    house.wait(house.gpu("sleep", "60", shares=8, time="1h", name="holder"), "running")
    sweep = house.gpu("true", name="sweep", array="1-3000", time="5m")
    last = house.gpu("true", name="last")
    house.until("the line is in the engine", lambda: house.show(last)["position"] == 3000)
    lock, held = house.platform.conductor.lock, []

    def looked(*given: Any) -> Any:
        """Whoever decides meanwhile finds the lock free: a loop that has it for a moment gives it back."""
        with ThreadPoolExecutor(1) as other:
            held.append(not other.submit(lock.acquire, timeout=10).result())
            if not held[-1]:
                other.submit(lock.release).result()
        return expect(*given)

    monkeypatch.setattr(expected, "expect", looked)
    found, reason = expected.expected_start(house.platform, last)
    assert found is not None, reason
    assert at(found["p50"]) - time.time() > 3600
    assert held == [False]
    house.cancel(sweep)
