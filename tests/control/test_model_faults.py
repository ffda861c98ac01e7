"""Servers that load for long, are too late, find their port taken, or die: a clear word each time, and a next try."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.control import verbs
from tenure.control.clock import Clock
from tenure.domain.errors import HouseFault
from tenure.domain.ids import Instant

from .conftest import ME, House
from .test_models import SERVER, ask, declare, model, models, until

__all__ = ["models"]  # the fixture


def test_loading_outlasts_the_default_start_timeout_and_the_idle_time(
    models: Callable[..., House], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steady clock jumps by six minutes while it loads, and again when it is ready and nobody asks."""
    late, real = [0], Clock.steady
    monkeypatch.setattr(Clock, "steady", lambda clock: Instant(real(clock) + late[0] * 1_000_000))
    declare(tmp_path / "home", "small", "--load", "2", startTimeout="10m", idleAfter="1m")
    house = models()
    verbs.wake(house.platform, "small", caller=ME)
    row = until(house, "starting")
    late[0] = 360
    assert until(house, "ready", "failed", "asleep")["state"] == "ready"
    assert model(house)["job_id"] == row["job_id"]
    late[0] = 720
    until(house, "asleep")


class Standing:
    """The steady clock, which goes on when it is told to: a busy machine is not later than a test wants it to be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now_us = time.time_ns() // 1000
        monkeypatch.setattr(Clock, "steady", lambda _: Instant(self._now_us))

    def goes_on(self, seconds: float) -> None:
        self._now_us += int(seconds * 1e6)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Standing:
    return Standing(monkeypatch)


def test_after_a_real_timeout_the_next_request_waits_for_a_backoff_that_doubles(
    clock: Standing, models: Callable[..., House], tmp_path: Path
) -> None:
    declare(tmp_path / "home", "small", "--load", "60", startTimeout="300ms")
    house = models()

    def asked() -> int:
        """As a request does it."""
        verbs.wake(house.platform, "small", caller=ME, insist=False)
        return int(model(house)["wakes"])

    def too_late() -> dict[str, Any]:
        until(house, "starting")
        clock.goes_on(0.301)
        return until(house, "failed")

    assert asked() == 1
    first = too_late()
    assert (first["reason"], first["job_id"], first["port"]) == ("StartTimeout", None, None)
    assert first["message"] == "it was not ready within 0.3 s"
    assert first["retry_after_s"] == 1
    clock.goes_on(0.99)
    assert asked() == 1, "not yet"
    clock.goes_on(0.01)
    assert asked() == 2
    assert too_late()["retry_after_s"] == 2
    assert asked() == 2
    verbs.wake(house.platform, "small", caller=ME)
    assert model(house)["wakes"] == 3, "a person does not wait for it"
    assert too_late()["retry_after_s"] == 4


def test_a_port_that_is_taken_is_told_and_another_one_is_tried_once(
    models: Callable[..., House], tmp_path: Path
) -> None:
    serve = " ".join(shlex.quote(word) for word in SERVER)
    script = f"echo {{port}} >> {tmp_path}/ports; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exec {serve}"
    declare(tmp_path / "home", "small", command=["sh", "-c", script])
    house = models()
    verbs.wake(house.platform, "small", caller=ME)
    ports = tmp_path / "ports"
    house.until("it waits", lambda: ports.exists() and ports.read_text().endswith("\n"))
    with socket.create_server(("127.0.0.1", int(ports.read_text()))):  # and says nothing to anybody
        (tmp_path / "go").touch()
        row = until(house, "ready", "failed")
    first, second = ports.read_text().split()
    assert (row["state"], row["port"], row["wakes"]) == ("ready", int(second), 2)
    assert first != second
    cause = row["last_wake"]["cause"]
    assert cause.startswith(f"once more, as port {first} is taken by ")
    assert f"(pid {os.getpid()})" in cause


@pytest.mark.parametrize(
    ("spec", "reason", "word"),
    [
        ({"command": ["/no/such/server", "{port}"]}, "CommandNotFound", "/no/such/server"),
        ({"command": ["no-such-server", "{port}"]}, "CommandNotFound", "not found on PATH"),
        ({"command": ["/etc", "{port}"]}, "NotExecutable", "/etc"),
        ({"workingDir": "/no/such/folder"}, "WorkdirUnusable", "/no/such/folder"),
    ],
)
def test_what_cannot_be_started_is_told_at_once(
    clock: Standing, models: Callable[..., House], tmp_path: Path, spec: dict[str, object], reason: str, word: str
) -> None:
    declare(tmp_path / "home", "small", **spec)
    house = models()
    verbs.wake(house.platform, "small", caller=ME)
    row = until(house, "failed")  # no time passes
    assert (row["reason"], row["job_id"]) == (reason, None)
    assert row["message"].startswith("its server could not be started: ")
    assert word in row["message"]
    assert row["retry_after_s"] == 1


def test_whoever_mends_the_document_does_not_wait_for_the_backoff(
    clock: Standing, models: Callable[..., House], tmp_path: Path
) -> None:
    declare(tmp_path / "home", "small", command=["/no/such/server", "{port}"])
    house = models()
    for _ in range(5):
        verbs.wake(house.platform, "small", caller=ME)
        until(house, "failed")
    assert model(house)["retry_after_s"] == 16
    verbs.reload_policy(house.platform, caller=ME)
    assert model(house)["retry_after_s"] == 16, "it is as it was"
    declare(tmp_path / "home", "small")
    verbs.reload_policy(house.platform, caller=ME)
    assert model(house)["retry_after_s"] == 0
    verbs.wake(house.platform, "small", caller=ME, insist=False)
    until(house, "ready")


@pytest.mark.parametrize("when", ["loading", "idle"])
def test_a_server_that_dies_leaves_nothing_half_open(models: Callable[..., House], tmp_path: Path, when: str) -> None:
    declare(tmp_path / "home", "small", *(["--load", "0.2", "--die-loading", "7"] if when == "loading" else []))
    house = models()
    verbs.wake(house.platform, "small", caller=ME)
    if when == "idle":
        os.kill(ask(until(house, "ready"))["pid"], signal.SIGKILL)
    row = until(house, "failed")
    assert (row["job_id"], row["run_id"], row["port"], row["in_flight"]) == (None, None, None, 0)
    said = "while it was loading (exited with code 7)" if when == "loading" else "while it was up ("
    assert said in row["message"] or (when == "idle" and row["reason"] == "NotListening"), row
    assert house.show(row["last_wake"]["job_id"])["state"] == "ended"
    declare(tmp_path / "home", "small")
    verbs.reload_policy(house.platform, caller=ME)
    verbs.wake(house.platform, "small", caller=ME)
    until(house, "ready")


def test_an_end_that_could_not_be_written_down_is_asked_for_again(models: Callable[..., House], tmp_path: Path) -> None:
    declare(tmp_path / "home", "small")
    house = models()
    verbs.wake(house.platform, "small", caller=ME)
    until(house, "ready")
    with house.refusing("UPDATE ON jobs WHEN NEW.state = 'cancelling'"), pytest.raises(HouseFault):
        verbs.sleep(house.platform, "small", caller=ME)
    until(house, "asleep")


def test_what_fails_at_one_model_keeps_no_other_from_waking(models: Callable[..., House], tmp_path: Path) -> None:
    for name in ("first", "second"):
        declare(tmp_path / "home", name, queueName="default")
    house = models()
    verbs.wake(house.platform, "first", caller=ME)
    until(house, "ready", name="first")
    with house.refusing("UPDATE ON jobs WHEN NEW.state = 'cancelling'"):
        with pytest.raises(HouseFault):
            verbs.sleep(house.platform, "first", caller=ME)
        verbs.wake(house.platform, "second", caller=ME)
        until(house, "ready", name="second")
    until(house, "asleep", name="first")
