"""The life of a job that ran: its waits one by one, who took its place by which rule, and what has to be done again."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from tenure.control import views

from .conftest import House

SAVES = """
import time, tenure
with tenure.Run("saves") as run:
    time.sleep(0.5)
    run.checkpoint(1, b"half")
    print("saved", flush=True)
    time.sleep(60)
"""


def story(house: House, job: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = views.why(house.platform, job)["phases"]
    for one, other in pairwise(told):
        assert one["to"] == other["from"], "no time is left out, and none told twice"
    assert all(phase["to"] for phase in told[:-1])
    return told


def test_waits_and_what_was_taken_are_told_phase_by_phase(house: House) -> None:
    first_gate, second_gate = house.gate("first"), house.gate("second")
    holder = house.gpu(*first_gate.argv(), shares=8, priority="training")
    house.wait(holder, "running")
    job = house.gpu("bash", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done", shares=8)
    house.wait_reason(job, "WaitingForQuota")
    first_gate.open()
    house.wait_out(job, "ready")
    taker = house.gpu(*second_gate.argv(), shares=8, priority="training")
    house.wait_reason(job, "WaitingForQuota")
    second_gate.open()
    house.wait(taker)
    house.wait(job, "running")
    house.cancel(job)
    house.wait(job)
    told = story(house, job)
    assert [(p["phase"], p["reason"]) for p in told] == [
        ("waited", "WaitingForQuota"),
        ("was starting", ""),
        ("ran", ""),
        ("was leaving", ""),
        ("waited", "WaitingForQuota"),
        ("was starting", ""),
        ("ran", ""),
        ("was leaving", ""),
    ]
    first, second = (p for p in told if p["phase"] == "ran")
    assert (first["attempt"], first["taken_by"], first["rule"]) == (1, taker, "InClusterQueue")
    assert first["lost_s"] == first["seconds"]  # it saved nothing
    assert (second["taken_by"], second["rule"], second["lost_s"]) == (None, None, None)
    assert told[-1]["to"] is not None


def test_a_run_is_told_as_long_as_it_was_also_where_nobody_saw_it_end(house: House) -> None:
    gate = house.gate()
    job = house.submit(*gate.argv())
    house.wait(job, "running")
    house.close(keep_jobs=True)
    gate.open()
    record = house.run_dir(job) / "record.jsonl"
    deadline = time.monotonic() + 20
    while "closed" not in record.read_text():  # nobody is there whom one could ask
        assert time.monotonic() < deadline
        time.sleep(0.02)
    came_back = datetime.now(UTC)
    house.open()
    shown = house.wait(job)
    starting, ran = story(house, job)[-2:]
    assert (starting["phase"], ran["phase"]) == ("was starting", "ran")
    assert (ran["from"], ran["to"]) == (shown["started_at"], shown["ended_at"])
    assert datetime.fromisoformat(ran["to"]) < came_back


def test_a_victim_is_told_to_have_left_when_it_had(house: House) -> None:
    job = house.gpu("bash", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done", shares=8)
    house.wait_out(job, "ready")
    house.wait(house.gpu("true", shares=8, priority="training"))
    house.wait(job, "running")
    house.cancel(job)
    house.wait(job)
    told, attempts = story(house, job), house.show(job)["attempts"]
    left = [p["to"] for p in told if p["phase"] == "was leaving"]
    assert left[0] == attempts[0]["ended_at"]
    assert [p["from"] for p in told if p["phase"] == "ran"] == [a["started_at"] for a in attempts]


def test_what_a_checkpoint_holds_is_not_lost(house: House) -> None:
    job = house.gpu(sys.executable, "-c", SAVES, shares=8)
    house.wait_out(job, "saved")
    house.wait(house.gpu("true", shares=8, priority="training"))
    house.cancel(job)
    house.wait(job)
    ran = next(p for p in story(house, job) if p["phase"] == "ran")
    assert 0 <= ran["lost_s"] <= ran["seconds"] - 0.5


def test_a_hold_that_came_with_the_submission_says_how_to_end_it(house: House) -> None:
    held = house.gpu("true", hold=True)
    told = views.why(house.platform, held)
    assert told["message"] == f"held; `tenure release {held}` lets it be considered"
    assert [b["message"] for b in told["blockers"]] == [told["message"]]
    house.cancel(held)
