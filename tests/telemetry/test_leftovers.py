"""What a run leaves on a card: its own processes that live, and memory that nobody who lives is listed for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.domain.ids import CardId, Instant
from tenure.telemetry.leftovers import SLACK, Floors
from tenure.telemetry.nvml import CardSample, GpuProcess

CARD = CardId("GPU-1")
GIB = 1 << 30


def sample(used: int | None, *processes: tuple[int, int | None], error: str = "") -> CardSample:
    listed = tuple(GpuProcess(pid=pid, memory=memory) for pid, memory in processes)
    return CardSample(
        card=CARD,
        at=Instant(0),
        memory_used=used,
        processes=listed if used is not None else None,
        error=error,
        lost=used is None,
    )


@pytest.fixture
def of_run(tmp_path: Path) -> Iterator[int]:
    """A process that was started with a run's environment."""
    env = {"TENURE_JOB_ID": "7", "TENURE_RUN_DIR": str(tmp_path / "7.1")}
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], env=env, stdin=subprocess.PIPE)
    yield process.pid
    process.communicate(b"\n")


def dead() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_process_of_the_run_that_lives_is_named_with_what_it_holds(of_run: int, tmp_path: Path) -> None:
    floors = Floors()
    left = floors.look(sample(3 * GIB, (of_run, 3 * GIB)), run_dir=str(tmp_path / "7.1"), alone=False)
    (survivor,) = left.survivors
    assert (survivor.pid, survivor.memory, survivor.owner.id) == (of_run, 3 * GIB, "7")
    assert survivor.owner.command.startswith("python")
    assert not left.came_back
    other = floors.look(sample(3 * GIB, (of_run, 3 * GIB)), run_dir=str(tmp_path / "8.1"), alone=False)
    assert (other.survivors, other.came_back) == ((), True)
    assert [holding.pid for holding in other.others] == [of_run]


def test_what_a_card_had_in_use_before_is_its_own(tmp_path: Path) -> None:
    floors, pid = Floors(), dead()
    floors.saw([sample(GIB)])
    assert floors.look(sample(GIB), run_dir="/r/1.1", alone=True).came_back
    late = floors.look(sample(5 * GIB, (pid, 4 * GIB)), run_dir="/r/1.1", alone=True)
    assert (late.came_back, late.unexplained) == (False, 4 * GIB), "it is listed, and lives no more"
    assert floors.look(sample(GIB + SLACK), run_dir="/r/1.1", alone=True).came_back
    stuck = floors.look(sample(5 * GIB), run_dir="/r/1.1", alone=True)
    assert stuck.unexplained == 4 * GIB
    floors.accept(stuck)
    assert floors.look(sample(5 * GIB), run_dir="/r/2.1", alone=True).came_back


def test_a_reading_in_the_middle_of_a_change_does_not_lower_the_floor() -> None:
    floors = Floors()
    for used in (GIB, 0, GIB):
        floors.saw([sample(used)])
    assert floors.look(sample(GIB), run_dir="/r/1.1", alone=True).came_back
    for used in (0, 0):
        floors.saw([sample(used)])
    assert not floors.look(sample(GIB), run_dir="/r/1.1", alone=True).came_back


def test_what_the_driver_does_not_tell_is_not_claimed(of_run: int, tmp_path: Path) -> None:
    floors = Floors()
    floors.saw([sample(0)])
    me = os.getpid()
    assert floors.look(sample(6 * GIB, (me, None)), run_dir="/r/1.1", alone=True).unexplained is None
    shared = floors.look(sample(6 * GIB), run_dir="/r/1.1", alone=False)
    assert (shared.unexplained, shared.came_back) == (None, True), "others may hold it under numbers that we cannot see"
    floors.saw([sample(GIB, (of_run, GIB))])  # now it is known that pids are the same on both sides
    assert floors.look(sample(6 * GIB, (of_run, GIB)), run_dir="/r/1.1", alone=False).unexplained == 5 * GIB


def test_a_card_that_does_not_answer_is_no_empty_card() -> None:
    left = Floors().look(sample(None, error="GPU is lost"), run_dir="/r/1.1", alone=True)
    assert (left.came_back, left.lost, left.error) == (False, True, "GPU is lost")
