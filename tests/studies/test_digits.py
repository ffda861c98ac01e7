"""The digits study, as real processes: killed anywhere and resumed, it ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tenure.sdk.record import Record, read_record

from .conftest import as_attempt

STUDY = [sys.executable, "-m", "tenure_studies.digits", "--epochs", "4", "--checkpoint-every", "15"]
SLOW = [*STUDY, "--pace", "0.05"]
STEPS = 4 * 21


def environment(**more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("TENURE_", "PYTHONDONTWRITE"))}
    return {**kept, **more}


class Starter(Protocol):
    def __call__(self, command: list[str], where: Path, **env: str) -> subprocess.Popen[bytes]: ...


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts studies; what a failed test left running is ended with it."""
    started: list[subprocess.Popen[bytes]] = []

    def start(command: list[str], where: Path, **env: str) -> subprocess.Popen[bytes]:
        with (where / "stderr.log").open("ab") as errors:
            process = subprocess.Popen(
                command, cwd=where, env=environment(**env), stdin=subprocess.DEVNULL, stdout=errors, stderr=errors
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def wait_for_step(run: Path, step: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        metric = read_record(run).metrics.get("loss")
        if metric is not None and (metric["step"] or 0) >= step:
            return
        assert process.poll() is None, "it left before that"
        time.sleep(0.02)
    raise AssertionError(f"step {step} was not reached")


def results(run: Path) -> dict[str, object]:
    record = read_record(run)
    assert record.outcome == "completed", record.closed
    return record.results


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Record:
    where = tmp_path_factory.mktemp("undisturbed")
    done = subprocess.run(STUDY, cwd=where, env=environment(), capture_output=True, timeout=60, check=True)
    (run,) = [path for path in (where / "runs").iterdir() if path.is_dir()]
    assert str(run) in done.stderr.decode()
    return read_record(run)


def test_it_learns_and_says_so(undisturbed: Record) -> None:
    assert undisturbed.outcome == "completed"
    accuracy = undisturbed.results["accuracy"]
    assert isinstance(accuracy, float)
    assert accuracy > 0.93
    assert undisturbed.results["steps"] == STEPS == undisturbed.metrics["loss"]["count"]
    assert [phase["name"] for phase in undisturbed.phases] == ["load", "train", "test"]
    assert all(phase["seconds"] is not None for phase in undisturbed.phases)
    assert undisturbed.config["epochs"] == 4
    assert "numpy" in str(undisturbed.environment["packages"])


def test_stopped_killed_and_stopped_again_it_ends_bit_for_bit_the_same(
    tmp_path: Path, undisturbed: Record, start: Starter
) -> None:
    first, env = as_attempt(tmp_path, 1)
    process = start(SLOW, tmp_path, **env)
    wait_for_step(first, 8, process)  # before any regular checkpoint: only the one made on the way out can help
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 128 + signal.SIGTERM
    stopped = read_record(first)
    assert stopped.outcome == "interrupted"
    assert stopped.closed is not None
    assert (stopped.closed["exit_code"], stopped.closed["signal"]) == (143, 15)

    second, env = as_attempt(tmp_path, 2)
    process = start(SLOW, tmp_path, **env)
    wait_for_step(second, 34, process)
    process.kill()  # nothing of the study runs any more: it falls back to its last checkpoint
    process.wait(20)
    assert read_record(second).outcome is None
    resumed = read_record(second).resumed_from
    assert resumed is not None
    assert resumed["step"] == stopped.checkpoints[-1]["step"]

    third, env = as_attempt(tmp_path, 3)
    process = start(STUDY, tmp_path, **env)
    assert process.wait(60) == 0, (tmp_path / "stderr.log").read_text()
    record = read_record(third)
    assert record.resumed_from is not None
    step = record.resumed_from["step"]
    assert step >= 30, "the kill came later than that, if not at once"
    assert step % 15 == 0
    assert results(third) == undisturbed.results
    assert record.retry_of == "7.2"


def test_without_a_platform_it_resumes_by_name(tmp_path: Path, undisturbed: Record, start: Starter) -> None:
    process = start(SLOW, tmp_path)
    deadline = time.monotonic() + 40
    while not (found := [path for path in tmp_path.glob("runs/*-digits-*") if path.is_dir()]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    wait_for_step(found[0], 20, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert read_record(found[0]).outcome == "cancelled"

    done = subprocess.run(
        [*STUDY, "--resume", found[0].name],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert b"run" in done.stderr
    (last,) = [path for path in tmp_path.glob("runs/*-digits-*") if path != found[0]]
    assert results(last) == undisturbed.results
    assert read_record(last).retry_of == found[0].name


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    run, env = as_attempt(tmp_path, 1)
    subprocess.run([*STUDY, "--epochs", "1"], cwd=tmp_path, env=environment(**env), timeout=60, check=True)
    assert read_record(run).outcome == "completed"
    run, env = as_attempt(tmp_path, 2)
    done = subprocess.run(
        [*STUDY, "--hidden", "20"], cwd=tmp_path, env=environment(**env), capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 1
    record = read_record(run)
    assert record.outcome == "failed"
    assert record.closed is not None
    assert "another training" in record.closed["message"]
