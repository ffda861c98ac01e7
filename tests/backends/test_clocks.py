"""A wall clock that jumps in the middle of an attempt: no negative ages, and every wait by the monotonic clock."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tenure.backends.local.clock import Clock, end_of
from tenure.backends.local.requests import ask
from tenure.backends.local.truth import look
from tenure.domain.lifecycle import Outcome
from tenure.sdk.record import read_record

from .local_rig import LocalRig, eventually

HOUR = 3600 * 1_000_000


class JumpingClock(Clock):
    """The wall is set when a file appears; the other clocks are the machine's."""

    def __init__(self, switch: Path, by: int) -> None:
        self._switch, self._by = switch, by

    def wall(self) -> int:
        return super().wall() + (self._by if self._switch.exists() else 0)


@pytest.mark.parametrize("by", [-2 * HOUR, 24 * HOUR], ids=["two hours back", "a day on"])
def test_a_jump_of_the_wall_clock_hurts_nobody(rig: LocalRig, tmp_path: Path, by: int) -> None:
    attempt = rig.job("sleep", "900", time_limit_s=60.0)
    switch = tmp_path / "jump"
    began = time.monotonic()
    waiter = rig.supervise(attempt, clock=JumpingClock(switch, by))
    started = rig.news.running(attempt.run_id).started_at
    switch.touch()
    ask(
        attempt.run_dir,
        {
            "kind": "stop",
            "stop": "preempt",
            "reason": "Preempted",
            "message": "",
            "by": "",
            "grace_s": 30,
            "signal": "TERM",
        },
    )
    ended = rig.news.settled(attempt.run_id)
    took = time.monotonic() - began
    waiter.join(timeout=10)
    assert ended.outcome is Outcome.INTERRUPTED  # and not the time limit, a day later
    assert started is not None
    assert ended.ended_at is not None
    assert ended.ended_at >= started
    if by < 0:
        assert ended.ended_at - started <= took * 1_000_000
    assert isinstance(ended.details["elapsed_us"], int)
    assert 0 <= ended.details["elapsed_us"] < 60 * 1_000_000
    assert read_record(attempt.run_dir).outcome == "interrupted"
    eventually(lambda: not look(attempt.run_dir)[1])


def test_the_end_is_the_walls_own_word_unless_it_would_precede_the_start() -> None:
    assert end_of(started_wall=100, started_elapsed=5, wall=130, elapsed=20) == 130
    assert end_of(started_wall=100, started_elapsed=5, wall=40, elapsed=20) == 115
    assert end_of(started_wall=100, started_elapsed=50, wall=40, elapsed=20) == 100
