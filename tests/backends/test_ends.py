"""How an attempt ended: exit codes and signals, stops that race with the end, time limits, and the run's own word."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tenure.backends.local.verdict import Exit, decide
from tenure.domain.attempt import AttemptState, Stop, StopKind
from tenure.domain.job import StopSignal
from tenure.domain.lifecycle import Outcome
from tenure.sdk.record import RecordWriter, read_record

from .local_rig import BeginsWith, LocalRig, eventually, lines


def stop(kind: StopKind, *, grace_s: float = 10.0, number: str = "TERM") -> Stop:
    return Stop(kind=kind, reason=kind.value, message=f"for {kind.value}", by="test", grace_s=grace_s, signal=number)


def test_a_signal_is_128_and_its_number(rig: LocalRig) -> None:
    attempt = rig.job("bash", "-c", "kill -SEGV $$")
    rig.backend.start(attempt)
    ended = rig.news.settled(attempt.run_id)
    assert (ended.outcome, ended.exit_code, ended.signal) == (Outcome.FAILED, 139, signal.SIGSEGV)
    assert "SIGSEGV" in ended.message


def test_who_left_before_the_stop_was_heard_has_completed(rig: LocalRig) -> None:
    """The supervisor is held still while the program ends and the cancel arrives: it must look at the program first."""
    attempt = rig.attempt()
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    supervisor = lines(attempt)[0]["pid"]
    member = next(line["pid"] for line in lines(attempt) if line["kind"] == "member")
    os.kill(supervisor, signal.SIGSTOP)
    rig.end(attempt, 0)
    eventually(lambda: Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    rig.backend.stop(attempt.run_id, attempt.run_dir, stop(StopKind.CANCEL))
    os.kill(supervisor, signal.SIGCONT)
    ended = rig.news.settled(attempt.run_id)
    assert (ended.outcome, ended.exit_code) == (Outcome.COMPLETED, 0)
    assert not read_record(attempt.run_dir).cancel_marked


def test_the_mark_is_there_before_the_signal(rig: LocalRig) -> None:
    """The program looks into its record when it hears SIGTERM."""
    attempt = rig.job(
        "bash",
        "-c",
        "trap 'tail -n 1 $TENURE_RUN_DIR/record.jsonl; exit 0' TERM; echo up; while :; do sleep 0.05; done",
    )
    rig.backend.start(attempt)
    log = Path(attempt.run_dir) / "stdout.log"
    eventually(lambda: log.exists() and log.read_text() == "up\n")
    rig.backend.stop(attempt.run_id, attempt.run_dir, stop(StopKind.PREEMPT))
    ended = rig.news.settled(attempt.run_id)
    assert ended.outcome is Outcome.INTERRUPTED
    assert '"kind":"stop_requested","stop":"preempt"' in log.read_text()


def test_a_preemption_and_a_cancel_are_both_in_the_record(rig: LocalRig) -> None:
    attempt = rig.attempt(stubborn=True)
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    rig.ready(attempt)
    rig.backend.stop(attempt.run_id, attempt.run_dir, stop(StopKind.PREEMPT))
    rig.backend.stop(attempt.run_id, attempt.run_dir, stop(StopKind.CANCEL, grace_s=0.1))
    ended = rig.news.settled(attempt.run_id)
    record = read_record(attempt.run_dir)
    assert (ended.outcome, record.outcome) == (Outcome.CANCELLED, "cancelled")
    assert [mark["stop"] for mark in record.stops] == ["preempt", "cancel"]


def test_another_signal_is_sent_too(rig: LocalRig) -> None:
    attempt = rig.attempt(stubborn=True)
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    rig.ready(attempt)
    rig.backend.stop(attempt.run_id, attempt.run_dir, stop(StopKind.CANCEL, grace_s=60))
    rig.backend.stop(attempt.run_id, attempt.run_dir, stop(StopKind.CANCEL, grace_s=60, number="KILL"))
    assert rig.news.settled(attempt.run_id).signal == signal.SIGKILL  # long before the minute is over


def test_the_time_limit_fails_with_124(rig: LocalRig) -> None:
    attempt = rig.job("sleep", "900", time_limit_s=0.3, grace_s=5.0)
    rig.backend.start(attempt)
    ended = rig.news.settled(attempt.run_id)
    assert (ended.outcome, ended.reason, ended.exit_code) == (Outcome.FAILED, "TimeLimit", 124)
    record = read_record(attempt.run_dir)
    assert (record.outcome, [mark["stop"] for mark in record.stops]) == ("failed", ["time-limit"])


def test_a_warning_goes_out_before_the_time_limit(rig: LocalRig, tmp_path: Path) -> None:
    program = "trap 'echo warned; exit 0' USR1; touch ready; while :; do sleep 0.05; done"
    attempt = rig.job("bash", "-c", program, time_limit_s=30.0, stop_signal=StopSignal(signal="USR1", before_s=29.6))
    rig.supervise(attempt, clock=BeginsWith(tmp_path / "ready"))
    ended = rig.news.settled(attempt.run_id)
    assert (ended.outcome, ended.exit_code) == (Outcome.COMPLETED, 0)
    assert (Path(attempt.run_dir) / "stdout.log").read_text() == "warned\n"


@pytest.mark.parametrize("own", ["failed", "interrupted"])
def test_the_runs_own_word_counts(rig: LocalRig, own: str) -> None:
    attempt = rig.attempt()
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    RecordWriter(attempt.run_dir).closed(own, exit_code=0, reason="Own", message="so it was")
    rig.end(attempt, 0)
    ended = rig.news.settled(attempt.run_id)
    assert (ended.outcome, ended.reason) == (Outcome(own), "Own")
    assert read_record(attempt.run_dir).outcome == own


def test_a_run_that_completed_in_spite_of_the_stop_stays_completed(rig: LocalRig) -> None:
    attempt = rig.attempt()
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    RecordWriter(attempt.run_dir).closed("completed", exit_code=0)
    rig.backend.stop(attempt.run_id, attempt.run_dir, stop(StopKind.PREEMPT))
    assert rig.news.settled(attempt.run_id).outcome is Outcome.COMPLETED


def test_an_end_is_heard_at_once(rig: LocalRig) -> None:
    """By news of it, and not at somebody's next look: some milliseconds, where the machine has one to spare."""
    took = []
    for _ in range(5):
        attempt = rig.attempt()
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        began = time.monotonic()
        rig.end(attempt, 0)
        rig.news.settled(attempt.run_id)
        took.append(time.monotonic() - began)
    assert min(took) < 0.5, took


def test_a_stop_is_marked_once_however_often_it_is_asked(rig: LocalRig) -> None:
    attempt = rig.attempt(stubborn=True)
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    rig.ready(attempt)
    for _ in range(3):
        rig.backend.stop(attempt.run_id, attempt.run_dir, stop(StopKind.CANCEL, grace_s=0.3))
    rig.news.settled(attempt.run_id)
    assert len(read_record(attempt.run_dir).stops) == 1


def test_the_daemon_reads_the_end_that_came_while_it_was_away(rig: LocalRig) -> None:
    attempt = rig.attempt()
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    rig.close()
    before = time.time_ns() // 1000
    rig.end(attempt, 11)
    eventually(lambda: any(line["kind"] == "ended" for line in lines(attempt)))
    after = time.time_ns() // 1000
    rig.open()
    seen = rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id]
    assert (seen.state, seen.exit_code) == (AttemptState.ENDED, 11)
    assert seen.ended_at is not None
    assert before <= seen.ended_at <= after


def test_who_was_killed_for_want_of_memory_is_told_so(rig: LocalRig) -> None:
    group = Path("/sys/fs/cgroup/memory") / f"tenure-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(32 << 20))
        attempt = rig.python(
            f"open('{group}/cgroup.procs', 'w').write('0')\nhoard = []\nwhile True: hoard.append(bytearray(1 << 20))\n"
        )
        rig.backend.start(attempt)
        ended = rig.news.settled(attempt.run_id)
        assert (ended.outcome, ended.exit_code, ended.reason) == (Outcome.FAILED, 137, "OutOfMemory")
    finally:
        group.rmdir()


CANCEL_MARK = {"stop": "cancel", "reason": "c", "message": ""}
PREEMPT_MARK = {"stop": "preempt", "reason": "p", "message": ""}
LIMIT_MARK = {"stop": "time-limit", "reason": "TimeLimit", "message": ""}


@pytest.mark.parametrize(
    ("stops", "code", "outcome", "reason"),
    [
        ([], 0, "completed", ""),
        ([], 2, "failed", ""),
        ([PREEMPT_MARK], 0, "interrupted", "p"),
        ([PREEMPT_MARK, CANCEL_MARK], 143, "cancelled", "c"),
        ([CANCEL_MARK, PREEMPT_MARK], 143, "cancelled", "c"),
        ([LIMIT_MARK, PREEMPT_MARK], 143, "failed", "TimeLimit"),
        ([PREEMPT_MARK, LIMIT_MARK], 143, "interrupted", "p"),
        ([LIMIT_MARK, CANCEL_MARK], 143, "cancelled", "c"),
    ],
)
def test_the_mark_decides(stops: list[dict[str, str]], code: int, outcome: str, reason: str) -> None:
    exit_ = Exit(0, code)
    failure = exit_ if code and not stops else None
    verdict = decide(main=exit_, failure=failure, stops=stops, closed=None, size=1)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
