"""A study and its supervisor write one record together, and agree on how it ended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tenure.domain.attempt import AttemptSpec, Observation, Stop, StopKind
from tenure.domain.lifecycle import Outcome
from tenure.sdk.record import Record, read_record

from .local_rig import LocalRig, eventually

STUDY = """
import dataclasses, sys, tenure, time

@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    then: str = "work"

@tenure.study
def study(run: tenure.Run, spec: Spec) -> None:
    run.checkpoint(1, "one")
    print("up", flush=True)
    if spec.then == "raise":
        raise RuntimeError("diverged")
    while spec.then == "work":
        run.check()
        time.sleep(0.01)
    run.result(loss=0.5)

study.main()
"""


def study(rig: LocalRig, then: str) -> AttemptSpec:
    (rig.home / "study.py").write_text(STUDY)
    attempt = rig.job(sys.executable, "study.py", "--then", then)
    rig.backend.start(attempt)
    return attempt


def settled(rig: LocalRig, attempt: AttemptSpec) -> tuple[Observation, Record]:
    return rig.news.settled(attempt.run_id), read_record(attempt.run_dir)


def test_completed(rig: LocalRig) -> None:
    ended, record = settled(rig, study(rig, "leave"))
    assert (ended.outcome, ended.exit_code) == (Outcome.COMPLETED, 0)
    assert (record.outcome, record.results) == ("completed", {"loss": 0.5})
    assert record.closed is not None
    assert (record.closed["by"], record.closed["exit_code"]) == ("run", 0)
    assert (record.run_id, record.job_id, record.attempt) == ("1.1", "1", 1)


def test_failed(rig: LocalRig) -> None:
    ended, record = settled(rig, study(rig, "raise"))
    assert (ended.outcome, record.outcome) == (Outcome.FAILED, "failed")
    assert ended.exit_code != 0
    assert record.closed is not None
    assert "diverged" in record.closed["message"]


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [(StopKind.PREEMPT, "interrupted"), (StopKind.CANCEL, "cancelled"), (StopKind.SHUTDOWN, "interrupted")],
)
def test_stopped(rig: LocalRig, kind: StopKind, outcome: str) -> None:
    attempt = study(rig, "work")
    log = Path(attempt.run_dir) / "stdout.log"
    eventually(lambda: log.exists() and "up" in log.read_text())
    rig.backend.stop(
        attempt.run_id, attempt.run_dir, Stop(kind=kind, reason="Preempted", message="made room", by="test")
    )
    ended, record = settled(rig, attempt)
    assert (ended.outcome, record.outcome) == (Outcome(outcome), outcome)
    assert record.closed is not None
    assert record.closed["by"] == "run"
    assert [mark["stop"] for mark in record.stops] == [kind.value]
    assert len(record.checkpoints) >= 1


def test_killed_in_the_middle(rig: LocalRig) -> None:
    attempt = study(rig, "work")
    log = Path(attempt.run_dir) / "stdout.log"
    eventually(lambda: log.exists() and "up" in log.read_text())
    rig.backend.stop(attempt.run_id, attempt.run_dir, Stop(kind=StopKind.PREEMPT, reason="Preempted", signal="KILL"))
    ended, record = settled(rig, attempt)
    assert (ended.outcome, ended.signal, record.outcome) == (Outcome.INTERRUPTED, 9, "interrupted")
    assert record.closed is not None
    assert (record.closed["by"], record.closed["exit_code"]) == ("supervisor", 137)
