"""Where cards are measured, a place is given away when the card says that it is empty: the daemon as it is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tenure.cli.client import Client
from tenure.settings import load

from .test_models import declare

sys.path.insert(0, str(Path(__file__).parents[1] / "telemetry"))
from nvml_fixtures import fake_nvml, nvml_library  # noqa: F401

if TYPE_CHECKING:
    from nvml_fixtures import FakeNvml

GIB = 1 << 30
ALL = {"shares": 8, "gpu_memory": "8Gi"}


class Machine:
    """A daemon before one card that the test steers."""

    def __init__(self, home: Path, nvml: FakeNvml) -> None:
        self.home, self.nvml = home, nvml
        self.start()

    def start(self) -> None:
        ready, tell = os.pipe()
        self.daemon = subprocess.Popen(
            [sys.executable, "-m", "tenure.portal.daemon", "--ready-fd", str(tell)],
            env=self.nvml.environ(TENURE_HOME=str(self.home)),
            pass_fds=[tell],
        )
        os.close(tell)
        with os.fdopen(ready) as pipe:
            said = json.loads(pipe.readline())
        assert said["ready"], said

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        client = Client(load({**os.environ, "TENURE_HOME": str(self.home)}))
        try:
            return client.call(method, path, body=body)
        finally:
            client.close()

    def job(self, *argv: str, **fields: Any) -> str:
        return str(self.ask("POST", "/jobs", {"argv": list(argv), "workdir": str(self.home.parent), **fields})["id"])

    def until(self, what: str, holds: Callable[[], Any], seconds: float = 20) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := holds()):
            assert time.monotonic() < deadline, what
            time.sleep(0.02)
        return found

    def is_(self, job: str, state: str) -> Any:
        return self.until(f"{job} is {state}", lambda: (j := self.ask("GET", f"/jobs/{job}"))["state"] == state and j)

    def pid(self, job: str) -> int:
        """Of a job that prints its own."""
        path = self.home / "runs" / f"{job}.1" / "stdout.log"
        return int(
            self.until(
                "it says its pid", lambda: path.exists() and path.read_text().endswith("\n") and path.read_text()
            )
        )

    def told(self, kind: str) -> list[Any]:
        client = Client(load({**os.environ, "TENURE_HOME": str(self.home)}))
        try:
            return [event for event in client.call("GET", "/events", query={"limit": 5000}) if event["kind"] == kind]
        finally:
            client.close()

    def end(self) -> None:
        self.daemon.terminate()
        assert self.daemon.wait(20) == 0


@pytest.fixture
def machine(fake_nvml: Callable[..., FakeNvml], tmp_path: Path) -> Iterator[Machine]:  # noqa: F811
    made = Machine(tmp_path / "home", fake_nvml(cards=1))
    yield made
    made.end()


SERVES = ("sh", "-c", "echo $$; exec sleep 60")


def test_memory_that_comes_back_late_is_waited_for(machine: Machine) -> None:
    """The process has left and the driver still counts what it held."""
    job = machine.job(*SERVES, **ALL)
    pid = machine.pid(job)
    machine.nvml.state.use(0, pid, 6 * GIB, ghost=True)
    after = machine.job("true", **ALL)
    machine.ask("POST", f"/jobs/{job}:cancel", {"grace_s": 5})
    machine.until("its process has left", lambda: not Path(f"/proc/{pid}").exists())
    waits = machine.until("it says what it waits for", lambda: "not back" in (m := machine.ask("GET", f"/jobs/{job}/why"))["message"] and m)  # fmt: skip
    assert waits["state"] == "cancelling"
    assert waits["message"].startswith("6 GiB of card GPU-")
    assert machine.ask("GET", f"/jobs/{after}")["state"] == "queued"
    machine.nvml.state.free(0, pid)
    assert machine.is_(job, "ended")["outcome"] == "cancelled"
    assert machine.is_(after, "ended")["outcome"] == "completed"
    assert len(machine.told("CardNotEmpty")) == 1
    assert machine.told("JobSurvivors") == []


def test_a_process_of_the_run_in_another_session_keeps_the_place_by_name(machine: Machine) -> None:
    """It was started for the run, by somebody whom its supervisor does not stand above: a container, a login."""
    job = machine.job(*SERVES, **ALL, grace="2s")
    machine.pid(job)
    env = {"TENURE_JOB_ID": job, "TENURE_RUN_DIR": str(machine.home / "runs" / f"{job}.1")}
    worker = subprocess.Popen(["sleep", "60"], env=env, start_new_session=True)
    try:
        machine.nvml.state.use(0, worker.pid, 2 * GIB)
        after = machine.job("true", **ALL, priority="training")
        waits = machine.until("it is named", lambda: f"pid {worker.pid}" in (m := machine.ask("GET", f"/jobs/{job}/why"))["message"] and m)  # fmt: skip
        assert waits["state"] == "evicting"
        assert f"sleep (pid {worker.pid}, 2 GiB of card GPU-" in waits["message"]
        assert machine.ask("GET", f"/jobs/{after}")["state"] == "queued"
        (told,) = machine.told("JobSurvivors")
        assert (told["data"]["survivors"][0]["pid"], told["data"]["survivors"][0]["bytes"]) == (worker.pid, 2 * GIB)
        machine.daemon.kill()  # and a daemon that comes back looks again
        machine.daemon.wait()
        machine.start()
        machine.until("it is named again", lambda: len(machine.told("JobSurvivors")) == 2)
        assert machine.ask("GET", f"/jobs/{job}")["state"] == "evicting"
    finally:
        worker.kill()
        worker.wait()
    assert machine.is_(after, "ended")["outcome"] == "completed"
    machine.is_(job, "running")
    machine.ask("POST", f"/jobs/{job}:cancel", {"grace_s": 0.2})


def test_a_model_is_asleep_when_its_card_is_empty(machine: Machine) -> None:
    declare(machine.home, "small", stopTimeout="2s")
    machine.ask("POST", "/policy:reload", {})
    machine.ask("POST", "/models/small:wake", {})

    def row() -> Any:
        return machine.ask("GET", "/models")[0]

    machine.until("it is up", lambda: row()["state"] == "ready")
    run = row()["run_id"]
    at = json.loads((machine.home / "runs" / run / "supervisor.jsonl").read_text().splitlines()[1])
    machine.nvml.state.use(0, at["pid"], 3 * GIB, ghost=True)
    machine.ask("POST", "/models/small:sleep", {})
    said = machine.until("it says why it is not asleep", lambda: "not back" in (r := row())["message"] and r)
    assert said["state"] == "draining"
    machine.nvml.state.free(0, at["pid"])
    machine.until("it is asleep", lambda: row()["state"] == "asleep")


def test_an_empty_card_costs_one_look_and_no_word(machine: Machine) -> None:
    jobs = [machine.job("true", **ALL) for _ in range(5)]
    for job in jobs:
        machine.is_(job, "ended")
    assert machine.told("CardNotEmpty") == machine.told("JobSurvivors") == []
