"""Expected starts of a real platform, and replays of what it really did."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from tenure.control import views


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


def test_the_forecast_of_a_long_line_leaves_the_lock_alone(house: Any) -> None:
    house.wait(house.gpu("sleep", "60", shares=8, time="1h", name="holder"), "running")
    sweep = house.gpu("true", name="sweep", array="1-3000", time="5m")
    last = house.gpu("true", name="last")
    house.until("the line is in the engine", lambda: house.show(last)["position"] == 3000)
    free: list[float] = []

    def looking(look: Callable[[], Any]) -> Any:
        import threading

        done = threading.Event()

        def watch() -> None:
            while not done.is_set():
                began = time.perf_counter()
                with house.platform.conductor.lock:
                    free.append(time.perf_counter() - began)
                time.sleep(0.002)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            return look()
        finally:
            done.set()
            thread.join()

    from tenure.control.views.expected import expected_start

    found, reason = looking(lambda: expected_start(house.platform, last))
    assert found is not None, reason
    assert at(found["p50"]) - time.time() > 3600
    assert max(free) < 0.3
    house.cancel(sweep)
