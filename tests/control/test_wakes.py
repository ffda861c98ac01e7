"""The last wake step by step, and how many there were: also after the platform has been down."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenure.control import verbs
from tenure.control.clock import from_wire, wire
from tenure.control.wakes import BACK, STEPS
from tenure.domain.events import EventKind
from tenure.domain.ids import Instant

from .conftest import ME, House
from .test_models import declare, model, models, until

__all__ = ["models"]  # the fixture


def answers(house: House) -> None:
    report = {"models": {"small": {"in_flight": 0, "held": 0, "active": True, "first_token": True}}}
    verbs.report_inference(house.platform, report, caller=ME)


def steps(row: dict[str, Any]) -> list[str]:
    times = [row["last_wake"][step] for step in STEPS]
    assert times == sorted(times)
    return times


def test_the_steps_of_a_wake_and_its_count_outlive_the_daemon(models: Callable[..., House], tmp_path: Path) -> None:
    declare(tmp_path / "home", "small", "--load", "0.3")
    house = models()
    verbs.wake(house.platform, "small", caller=ME, cause="a question", by="ann")
    until(house, "ready")
    answers(house)
    answers(house)
    before = model(house)
    steps(before)
    (told,) = house.platform.ledger.events(kinds=[EventKind.MODEL_ANSWERED])
    assert (told.job_id, told.run_id) == (before["job_id"], before["run_id"])
    assert told.message.startswith("small gives its first token, ")
    house.close(keep_jobs=True)
    house.open(card=None)
    after = until(house, "ready")
    assert after["last_wake"] == before["last_wake"]
    assert after["last_wake"]["by"] == "ann"
    assert after["wakes"] == 1
    house.close()
    house.open(card=None)
    asleep = until(house, "asleep")
    assert asleep["last_wake"] == before["last_wake"]
    verbs.wake(house.platform, "small", caller=ME, cause="another")
    assert until(house, "ready")["wakes"] == 2
    assert model(house)["last_wake"]["job_id"] != before["job_id"]


def test_coming_back_is_a_wake_of_its_own(models: Callable[..., House], tmp_path: Path) -> None:
    declare(tmp_path / "home", "small")
    house = models()
    verbs.wake(house.platform, "small", caller=ME)
    first = until(house, "ready")
    answers(house)
    job = house.gpu("true", shares=8, priority="training")
    house.wait(job)
    house.until("it is back", lambda: model(house)["run_id"] == f"{first['job_id']}.2")
    row = until(house, "ready")
    assert (row["last_wake"]["cause"], row["wakes"]) == (BACK, 1)
    diary = house.platform.ledger.events(kinds=[EventKind.MODEL_WOKEN], limit=9)
    assert [(event.run_id, event.data["cause"]) for event in diary] == [(None, "by hand"), (row["run_id"], BACK)]
    assert "first_token_at" not in row["last_wake"]
    assert row["last_wake"]["asked_at"] > first["last_wake"]["ready_at"]
    answers(house)
    steps(model(house))
    house.close(keep_jobs=True)
    house.open(card=None)
    again = until(house, "ready")["last_wake"]
    answered = model(house)["last_wake"].get("first_token_at")
    assert (again["cause"], again["admitted_at"]) == (BACK, row["last_wake"]["admitted_at"])
    assert answered is not None
    assert len(house.platform.ledger.events(kinds=[EventKind.MODEL_WOKEN], limit=9)) == 2, "said once"


def test_the_idle_clock_goes_on_where_it_was(models: Callable[..., House], tmp_path: Path) -> None:
    """From the last inference, or from when it became ready: not from when the platform came back."""
    home = tmp_path / "home"
    for name in ("silent", "asked"):
        declare(home, name, idleAfter="1h", queueName="general")
    house = models()
    for name in ("silent", "asked"):
        verbs.wake(house.platform, name, caller=ME)
    for name in ("silent", "asked"):
        until(house, "ready", name=name)
    house.close(keep_jobs=True)
    answered = Instant(time.time_ns() // 1_000_000 * 1000)
    (home / "gateway").mkdir(exist_ok=True)
    line = {"at": answered / 1e6, "model": "asked", "run": "2.1"}
    (home / "gateway" / "requests.jsonl").write_text("torn\n" + json.dumps(line) + "\n")
    back = time.time_ns() // 1000
    house.open(card=None)
    for name in ("silent", "asked"):
        row = until(house, "ready", name=name)
        last = answered if name == "asked" else from_wire(row["last_wake"]["ready_at"])
        assert row["last_inference_at"] == (wire(answered) if name == "asked" else None)
        counts_from = from_wire(row["sleeps_at"]) - 3_600_000_000
        assert counts_from < back
        assert abs(counts_from - last) < 2_000_000  # two clocks read one after the other
