"""The rules between what left a study, a stop, and the end that its record tells of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.sdk.ending import Ending, ending
from tenure.sdk.stopping import Interrupted, StopSignals
from tenure.sdk.writer import RecordWriter


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    """The directory of a run whose cancel is marked."""
    writer = RecordWriter(tmp_path)
    writer.stop_requested("cancel", "Cancelled", message="enough")
    writer.close()
    return tmp_path


@pytest.fixture
def stop() -> StopSignals:
    return StopSignals()


def of(problem: BaseException | None, stop: StopSignals, where: Path, *, platform: bool = True) -> Ending:
    return ending(problem, stop, directory=where, platform=platform)


@pytest.mark.parametrize(
    ("problem", "outcome", "code"),
    [
        (None, "completed", 0),
        (SystemExit(), "completed", 0),
        (SystemExit(0), "completed", 0),
        (SystemExit(3), "failed", 3),
        (SystemExit(-1), "failed", 255),
        (SystemExit("no data"), "failed", 1),
        (SystemExit(143), "failed", 143),
        (ValueError("no data"), "failed", 1),
        (KeyboardInterrupt(), "interrupted", 130),
        (Interrupted(15), "interrupted", 143),
    ],
)
def test_without_a_mark(
    stop: StopSignals, tmp_path: Path, problem: BaseException | None, outcome: str, code: int
) -> None:
    end = of(problem, stop, tmp_path)
    assert (end.outcome, end.exit_code) == (outcome, code)


def test_ctrl_c_at_ones_own_run_is_a_cancel(stop: StopSignals, tmp_path: Path) -> None:
    assert of(KeyboardInterrupt(), stop, tmp_path, platform=False).outcome == "cancelled"
    assert of(Interrupted(15), stop, tmp_path, platform=False).outcome == "interrupted"


def test_a_marked_stop_is_told_in_the_words_of_its_mark(stop: StopSignals, marked: Path) -> None:
    for problem in (Interrupted(15), SystemExit(143)):  # the second by a handler of the study's own
        assert of(problem, stop, marked) == Ending("cancelled", 143, 15, "Cancelled", "enough")


def test_who_was_told_of_a_stop_and_returned_gave_up_half_way(stop: StopSignals, marked: Path) -> None:
    stop.signum = 15
    assert of(None, stop, marked).outcome == "completed"  # it never heard of it
    assert stop.stopping
    assert of(None, stop, marked).outcome == "cancelled"
    assert of(ValueError("in the middle of it"), stop, marked).outcome == "failed"


def test_a_book_in_an_exception_is_cut(stop: StopSignals, tmp_path: Path) -> None:
    for problem in (ValueError("x" * 1_000_000), SystemExit("x" * 1_000_000)):
        end = of(problem, stop, tmp_path)
        assert max(len(end.message), len(end.traceback or "")) <= 16_384
