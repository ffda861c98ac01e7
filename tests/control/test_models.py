"""Models as jobs: woken, ready when their own process says so, asleep when everything of theirs has left."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.control import verbs, views
from tenure.control.clock import Clock
from tenure.domain.events import EventKind
from tenure.domain.ids import Instant

from .conftest import ME, House

SERVER = [sys.executable, "-P", "-m", "tenure.testing.model_server", "--port", "{port}"]


def declare(home: Path, name: str, *knobs: str, **spec: Any) -> None:
    """A Model document beside the policy; `spec` in the words of the document."""
    folder = home / "policy"
    folder.mkdir(parents=True, exist_ok=True)
    body = {"command": [*SERVER, *knobs], "queueName": "large-model", "priorityClassName": "on-demand"} | spec
    body = {"shares": 1, "gpuMemory": "1Gi"} | body
    document = {"apiVersion": "tenure.dev/v1", "kind": "Model", "metadata": {"name": name}, "spec": body}
    (folder / f"model-{name}.json").write_text(json.dumps(document))


@pytest.fixture
def models(tmp_path: Path) -> Iterator[Callable[..., House]]:
    """A house whose policy is the default one and these models."""
    house = House(tmp_path / "home")
    house.open()
    house.close()
    opened: list[House] = []

    def start() -> House:
        opened.append(house)
        return house.open(card=None)

    yield start
    if opened:
        house.close()


def model(house: House, name: str = "small") -> dict[str, Any]:
    return next(row for row in views.models(house.platform) if row["name"] == name)


def until(house: House, *states: str, name: str = "small", timeout: float = 30) -> dict[str, Any]:
    """The model once it is in one of these states: each change is told to whoever watches."""
    deadline = time.monotonic() + timeout
    while (row := model(house, name))["state"] not in states:
        assert time.monotonic() < deadline, row
        time.sleep(0.02)
    return row


def ask(row: dict[str, Any], path: str = "/pid") -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{row['port']}{path}", timeout=5) as answer:
        return json.load(answer)


CONTRACT = {
    "name",
    "state",
    "job_id",
    "run_id",
    "reason",
    "in_flight",
    "held",
    "wakes",
    "last_inference_at",
    "sleeps_at",
}
"""What scripts rely on."""


def test_a_model_wakes_is_a_job_and_sleeps(models: Callable[..., House], tmp_path: Path) -> None:
    declare(tmp_path / "home", "small", aliases=["default"])
    house = models()
    assert model(house)["state"] == "asleep"
    verbs.wake(house.platform, "default", caller=ME, cause="a test")
    row = until(house, "ready")
    job = views.show(house.platform, row["job_id"])
    assert (job["state"], job["name"], job["project"], job["priority_class"]) == (
        "running",
        "small",
        "models",
        "on-demand",
    )
    assert row["run_id"] == f"{job['id']}.1"
    assert set(row) >= CONTRACT
    pid = ask(row)["pid"]
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert f"CUDA_CACHE_PATH={tmp_path}/home/caches/small/cuda".encode() in environment
    assert f"JAX_COMPILATION_CACHE_DIR={tmp_path}/home/caches/small/jax".encode() in environment
    verbs.sleep(house.platform, "small", caller=ME)
    row = until(house, "asleep")
    assert not Path(f"/proc/{pid}").exists()
    assert (row["port"], row["job_id"]) == (None, None)
    woken = [e for e in house.platform.ledger.events(kinds=[EventKind.MODEL_WOKEN])]
    assert [(e.data["cause"], e.data["by"]) for e in woken] == [("a test", "tester")]
    told = [e.data["state"] for e in house.platform.ledger.events(kinds=[EventKind.MODEL_CHANGED])]
    assert told[-3:] == ["ready", "draining", "asleep"]


def test_whenever_it_is_put_to_sleep_its_job_says_why(models: Callable[..., House], tmp_path: Path) -> None:
    """Between its admission and its first process, too: that moment is somewhere among these."""
    declare(tmp_path / "home", "small")
    house = models()
    for number in range(16):
        row = verbs.wake(house.platform, "small", caller=ME, cause="a test")
        time.sleep(number * 0.002)
        verbs.sleep(house.platform, "small", caller=ME)
        until(house, "asleep")
        assert "put to sleep by tester" in views.show(house.platform, row["job_id"])["message"], number


def test_a_resident_model_is_up_with_the_platform_and_comes_back(models: Callable[..., House], tmp_path: Path) -> None:
    declare(tmp_path / "home", "small", resident=True, queueName="default")
    house = models()
    row = until(house, "ready")
    assert row["sleeps_at"] is None
    os.kill(ask(row)["pid"], signal.SIGKILL)
    until(house, "failed", "queued", "starting")
    again = until(house, "ready")
    assert again["wakes"] == 2
    assert again["job_id"] != row["job_id"]


def test_a_new_daemon_adopts_what_runs(models: Callable[..., House], tmp_path: Path) -> None:
    declare(tmp_path / "home", "small")
    house = models()
    verbs.wake(house.platform, "small", caller=ME)
    before = until(house, "ready")
    pid = ask(before)["pid"]
    house.close(keep_jobs=True)
    house.open(card=None)
    after = until(house, "ready")
    assert (after["job_id"], after["run_id"], after["port"]) == (before["job_id"], before["run_id"], before["port"])
    assert ask(after)["pid"] == pid


def test_what_only_waits_after_a_restart_sleeps(models: Callable[..., House], tmp_path: Path) -> None:
    declare(tmp_path / "home", "small")
    house = models()
    verbs.wake(house.platform, "small", caller=ME)
    job = until(house, "ready")["job_id"]
    house.close()
    house.open(card=None)
    assert house.wait(job)["outcome"] == "cancelled"
    row = until(house, "asleep")
    assert (row["wakes"], row["last_wake"]["job_id"]) == (1, job), "what was is not forgotten"


def test_a_lost_place_is_not_taken_again_for_nobody(models: Callable[..., House], tmp_path: Path) -> None:
    declare(tmp_path / "home", "small", idleAfter="1s")
    house = models()
    verbs.wake(house.platform, "small", caller=ME)
    row = until(house, "ready")
    trainer = house.gpu("sleep", "60", shares=8, priority="training")
    until(house, "queued", "asleep")
    assert "nobody has asked" in house.wait(row["job_id"])["message"]
    until(house, "asleep")
    house.cancel(trainer)


def test_who_left_the_line_is_not_loaded_for(
    models: Callable[..., House], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request asked for it and has gone; what a person asked for waits for its turn, however long that is."""
    late, real = [0], Clock.steady
    monkeypatch.setattr(Clock, "steady", lambda clock: Instant(real(clock) + late[0] * 1_000_000))
    declare(tmp_path / "home", "small", idleAfter="10m")
    declare(tmp_path / "home", "large", idleAfter="10m", queueName="default")
    house = models()
    trainer = house.gpu("sleep", "60", shares=8, priority="training")
    house.wait(trainer, "running")
    verbs.wake(house.platform, "small", caller=ME, insist=False)
    verbs.wake(house.platform, "large", caller=ME)
    row = until(house, "queued")
    late[0] = 590
    verbs.report_inference(house.platform, {"models": {"small": {"in_flight": 0, "held": 0}}}, caller=ME)
    house.platform.news.wait(house.platform.news.cursor, 0.2)
    assert until(house, "queued", "asleep")["state"] == "queued"
    late[0] = 610
    verbs.report_inference(house.platform, {"models": {"small": {"in_flight": 0, "held": 0}}}, caller=ME)
    assert "nobody has asked" in house.wait(row["job_id"])["message"]
    until(house, "asleep")
    assert until(house, "queued", "asleep", name="large")["state"] == "queued"
    house.cancel(trainer)


def test_a_model_that_is_no_longer_declared_is_put_to_sleep(models: Callable[..., House], tmp_path: Path) -> None:
    declare(tmp_path / "home", "small")
    house = models()
    verbs.wake(house.platform, "small", caller=ME)
    job = until(house, "ready")["job_id"]
    (tmp_path / "home" / "policy" / "model-small.json").unlink()
    verbs.reload_policy(house.platform, caller=ME)
    house.wait(job)
    house.until("nothing is declared", lambda: views.models(house.platform) == [])


def test_of_two_language_models_one_fits_and_the_others_why_says_so(
    models: Callable[..., House], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        declare(tmp_path / "home", name)
    house = models()
    verbs.wake(house.platform, "one", caller=ME)
    up = until(house, "ready", name="one")
    verbs.wake(house.platform, "two", caller=ME)
    until(house, "queued", name="two")
    waits = house.until("it says who is in the way", lambda: (row := model(house, "two"))["blocked_by"] and row)
    assert waits["blocked_by"] == ["one"]
    assert waits["placeable"] is True
    told = views.why(house.platform, waits["job_id"])
    assert up["job_id"] in {holder["id"] for blocker in told["blockers"] for holder in blocker["held_by"]}
    assert told["message"].endswith(f"; model one (job {up['job_id']}) has the place that model two waits for")
    assert waits["message"] == told["message"]
    verbs.sleep(house.platform, "one", caller=ME)
    until(house, "ready", name="two")


def test_nobody_has_the_place_of_a_model_that_has_room_nowhere(models: Callable[..., House], tmp_path: Path) -> None:
    declare(tmp_path / "home", "one")
    declare(tmp_path / "home", "vast", shares=99)
    house = models()
    verbs.wake(house.platform, "one", caller=ME)
    until(house, "ready", name="one")
    verbs.wake(house.platform, "vast", caller=ME)
    waits = house.until("it has no hope", lambda: not (row := model(house, "vast"))["placeable"] and row)
    told = views.why(house.platform, waits["job_id"])
    assert waits["reason"] == told["reason"] == "ExceedsMaxQuota"
    assert "model one" not in told["message"]
    assert waits["message"] == told["message"]


def test_a_job_that_only_says_it_serves_a_model_is_not_believed(models: Callable[..., House], tmp_path: Path) -> None:
    declare(tmp_path / "home", "small")
    house = models()
    labels = {"tenure.dev/model": "small", "tenure.dev/port": "20000"}
    job = house.submit("sleep", "60", labels=labels, project="models")
    house.wait(job, "running")
    house.close(keep_jobs=True)
    house.open(card=None)
    assert model(house)["state"] == "asleep"
    assert house.show(job)["state"] == "running"
    house.cancel(job, grace_s=0)
