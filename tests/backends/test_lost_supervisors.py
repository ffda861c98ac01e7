"""Supervisors that are killed, machines that restart, directories that are copied: nobody is lost and no stranger is hit."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.backends.local import processes
from tenure.backends.local.locks import is_locked
from tenure.domain.attempt import AttemptSpec, AttemptState, Stop, StopKind
from tenure.domain.lifecycle import Outcome
from tenure.sdk.record import RecordWriter, read_record

from .local_rig import LocalRig, alive, eventually, lines

CANCEL = Stop(kind=StopKind.CANCEL, reason="Cancelled", by="test", grace_s=2.0)


def supervisor(attempt: AttemptSpec) -> processes.Identity:
    opened = lines(attempt)[0]
    return processes.Identity(opened["pid"], opened["started"])


def kill(who: processes.Identity) -> None:
    """Returns when it has died, and with it its lock: a busy machine takes its time over that."""
    assert processes.send(who, signal.SIGKILL)
    eventually(lambda: processes.identity(who.pid) != who)


def clone(source: Path, target: Path) -> None:
    """What a backup or a snapshot of the disk would bring back, sockets included."""
    subprocess.run(["cp", "-a", source, target], check=True)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "900"])
    yield process
    assert process.poll() is None, "a stranger was signalled"
    process.kill()
    process.wait()


def test_a_closed_backend_ends_what_was_lost_and_writes_to_no_strangers_file(rig: LocalRig, tmp_path: Path) -> None:
    attempt = rig.job("sleep", "900", grace_s=2.0)
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    descriptors = set(os.listdir("/proc/self/fd"))
    rig.close()
    closed = len(descriptors - set(os.listdir("/proc/self/fd")))
    seen = rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id]
    assert seen.state is AttemptState.RUNNING
    kill(supervisor(attempt))
    for who in alive(attempt):
        kill(who)
    files = [(tmp_path / str(n)).open("w+") for n in range(closed)]  # they have the numbers of what was closed
    rig.backend.stop(attempt.run_id, attempt.run_dir, CANCEL)
    assert [os.fstat(file.fileno()).st_size for file in files] == [0] * closed
    for file in files:
        file.close()
    rig.open()
    assert rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id].state is AttemptState.ENDED


def test_a_killed_supervisor_is_noticed_and_its_processes_are_ended(rig: LocalRig) -> None:
    attempt = rig.job("bash", "-c", "setsid sleep 900 & sleep 901", grace_s=2.0)
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    eventually(lambda: len(alive(attempt)) == 3)
    kill(supervisor(attempt))
    ended = rig.news.settled(attempt.run_id)
    assert (ended.state, ended.outcome, ended.reason) == (AttemptState.ENDED, Outcome.INTERRUPTED, "SupervisorLost")
    assert alive(attempt) == []
    record = read_record(attempt.run_dir)
    assert (record.outcome, record.closed and record.closed["reason"]) == ("interrupted", "SupervisorLost")


def test_a_killed_process_group_changes_nothing_about_that(rig: LocalRig) -> None:
    attempt = rig.job("bash", "-c", "setsid sleep 900 & sleep 901", grace_s=2.0)
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    eventually(lambda: len(alive(attempt)) == 3)
    os.killpg(supervisor(attempt).pid, signal.SIGKILL)
    assert rig.news.settled(attempt.run_id).outcome is Outcome.INTERRUPTED
    assert alive(attempt) == []


def test_survivors_that_took_no_environment_along_are_found_by_their_control_group(rig: LocalRig) -> None:
    ours = f"sleep 4321.{os.getpid()}"
    attempt = rig.job("bash", "-c", f"env -i setsid {ours} & sleep 901", grace_s=2.0)
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    naked = lambda: [pid for pid in processes.everyone() if processes.command(pid) == ours]  # noqa: E731
    eventually(lambda: bool(naked()))
    kill(supervisor(attempt))
    rig.news.settled(attempt.run_id)
    assert naked() == []


def test_a_lost_attempt_has_its_true_end_where_everything_had_left(rig: LocalRig) -> None:
    """The supervisor wrote the exits and died before its last line."""
    attempt = rig.attempt()
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    rig.end(attempt, 6)
    rig.news.settled(attempt.run_id)
    eventually(lambda: not is_locked(f"{attempt.run_dir}/lock"))
    journal = Path(attempt.run_dir) / "supervisor.jsonl"
    journal.write_text("".join(line for line in journal.read_text().splitlines(keepends=True) if '"ended"' not in line))
    seen = rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id]
    assert (seen.state, seen.outcome, seen.exit_code) == (AttemptState.ENDED, Outcome.FAILED, 6)


def test_a_run_that_closed_its_own_record_is_believed(rig: LocalRig) -> None:
    attempt = rig.attempt()
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    RecordWriter(attempt.run_dir).closed("completed", exit_code=0)
    kill(supervisor(attempt))
    assert rig.news.settled(attempt.run_id).outcome is Outcome.COMPLETED


def test_a_cancel_that_nobody_heard_still_counts(rig: LocalRig) -> None:
    attempt = rig.attempt()
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    rig.close()
    kill(supervisor(attempt))
    eventually(lambda: alive(attempt) == [])
    rig.open()
    rig.backend.stop(attempt.run_id, attempt.run_dir, CANCEL)
    assert rig.news.settled(attempt.run_id).outcome is Outcome.CANCELLED
    assert read_record(attempt.run_dir).cancel_marked


@pytest.mark.parametrize("asked", ["before", "after"])
def test_the_grace_of_a_stop_holds_though_its_supervisor_was_killed(rig: LocalRig, asked: str) -> None:
    """Whoever cancels with two seconds waits two seconds, not the half minute that the job would have had."""
    attempt = rig.job("bash", "-c", "trap '' TERM; echo deaf; sleep 900; sleep 900", grace_s=30.0)
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    eventually(lambda: "deaf" in (Path(attempt.run_dir) / "stdout.log").read_text())
    if asked == "before":
        rig.backend.stop(attempt.run_id, attempt.run_dir, CANCEL)
        eventually(lambda: any(line["kind"] == "stop" for line in lines(attempt)))
    kill(supervisor(attempt))
    if asked == "after":
        eventually(lambda: any(line["kind"] == "survivors" for line in lines(attempt)))
        rig.backend.stop(attempt.run_id, attempt.run_dir, CANCEL)
    assert rig.news.settled(attempt.run_id, within_s=20.0).outcome is Outcome.CANCELLED
    assert alive(attempt) == []
    assert read_record(attempt.run_dir).cancel_marked


def test_lost_while_the_daemon_was_away_is_found_by_a_look(rig: LocalRig) -> None:
    attempt = rig.job("bash", "-c", "setsid sleep 900 & sleep 901", grace_s=2.0)
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    eventually(lambda: len(alive(attempt)) == 3)
    rig.close()
    kill(supervisor(attempt))
    rig.open()
    seen = rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id]
    assert (seen.state, seen.reason) == (AttemptState.STOPPING, "SupervisorLost")
    assert any("sleep 900" in survivor.command for survivor in seen.survivors)
    assert rig.news.settled(attempt.run_id).outcome is Outcome.INTERRUPTED
    assert alive(attempt) == []


def test_an_adopted_supervisor_that_is_killed_is_noticed(rig: LocalRig) -> None:
    attempt = rig.attempt()
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    rig.restart()
    rig.backend.observe([(attempt.run_id, attempt.run_dir)])
    kill(supervisor(attempt))
    assert rig.news.settled(attempt.run_id).reason == "SupervisorLost"


def test_on_another_boot_it_was_the_machine_and_nobody_is_signalled(rig: LocalRig, tmp_path: Path) -> None:
    attempt = rig.attempt()
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    here = alive(attempt)
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    clone(tmp_path / "runs", copy / "runs")
    other = LocalRig(copy, boot_id="another-boot")
    try:
        run_dir = str(copy / "runs" / attempt.run_id)
        seen = other.backend.observe([(attempt.run_id, run_dir)])[attempt.run_id]
        assert (seen.state, seen.outcome, seen.reason) == (AttemptState.ENDED, Outcome.INTERRUPTED, "MachineRestarted")
        assert seen.ended_at is not None
        assert seen.started_at is not None
        assert seen.ended_at >= seen.started_at
        assert read_record(run_dir).outcome == "interrupted"
        assert alive(attempt) == here
    finally:
        other.close()
    rig.end(attempt, 0)
    assert rig.news.settled(attempt.run_id).outcome is Outcome.COMPLETED


def test_a_copy_started_on_the_same_boot_leaves_the_original_alone(rig: LocalRig, tmp_path: Path) -> None:
    attempt = rig.attempt()
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    here = alive(attempt)
    (tmp_path / "elsewhere").mkdir()
    clone(tmp_path / "runs", tmp_path / "elsewhere" / "runs")
    other = LocalRig(tmp_path / "elsewhere")
    try:
        run_dir = str(tmp_path / "elsewhere" / "runs" / attempt.run_id)
        other.backend.stop(attempt.run_id, run_dir, CANCEL)
        seen = other.backend.observe([(attempt.run_id, run_dir)])[attempt.run_id]
        assert (seen.state, seen.outcome) == (AttemptState.ENDED, Outcome.CANCELLED)
        assert alive(attempt) == here
        assert processes.identity(supervisor(attempt).pid) == supervisor(attempt)
    finally:
        other.close()
    rig.end(attempt, 0)
    assert rig.news.settled(attempt.run_id).outcome is Outcome.COMPLETED


def test_a_copy_put_in_the_place_of_the_original_signals_nobody(rig: LocalRig, tmp_path: Path) -> None:
    attempt = rig.attempt()
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    rig.close()
    here = alive(attempt)
    clone(tmp_path / "runs", tmp_path / "copy")
    (tmp_path / "runs").rename(tmp_path / "moved")
    (tmp_path / "copy").rename(tmp_path / "runs")
    rig.open()
    seen = rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id]
    assert (seen.state, seen.outcome) == (AttemptState.ENDED, Outcome.INTERRUPTED)
    assert alive(attempt) == here


def test_a_stranger_with_a_recorded_pid_is_never_signalled(
    rig: LocalRig, stranger: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """The journal of a lost attempt names a pid that now belongs to somebody else."""
    attempt = rig.attempt()
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    rig.close()
    (who,) = alive(attempt)
    kill(supervisor(attempt))
    eventually(lambda: alive(attempt) == [])
    journal = Path(attempt.run_dir) / "supervisor.jsonl"
    journal.write_text(journal.read_text().replace(f'"pid":{who.pid},', f'"pid":{stranger.pid},'))
    rig.open()
    seen = rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id]
    assert seen.outcome is Outcome.INTERRUPTED


def test_the_forkserver_may_die_and_nobody_notices(rig: LocalRig) -> None:
    attempt = rig.attempt()
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    server = int(str(rig.backend.probe().details["forkserver_pid"]))
    os.kill(server, signal.SIGKILL)
    eventually(lambda: rig.backend.probe().details.get("forkserver_pid") not in (None, server))
    later = rig.attempt()
    rig.backend.start(later)
    rig.news.running(later.run_id)
    kill(supervisor(attempt))
    assert rig.news.settled(attempt.run_id).reason == "SupervisorLost"
    rig.end(later, 0)
    assert rig.news.settled(later.run_id).outcome is Outcome.COMPLETED


def test_a_supervisor_that_is_told_to_end_ends_its_attempt(rig: LocalRig) -> None:
    """What the machine does at shutdown."""
    attempt = rig.attempt()
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    assert processes.send(supervisor(attempt), signal.SIGTERM)
    ended = rig.news.settled(attempt.run_id)
    assert (ended.outcome, ended.reason) == (Outcome.INTERRUPTED, "PlatformStopped")


def test_supervisors_hold_nothing_of_the_daemon(rig: LocalRig, tmp_path: Path) -> None:
    with open(tmp_path / "ledger", "w") as file:
        os.set_inheritable(file.fileno(), True)
        rig.restart()
        attempt = rig.attempt()
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        pids = [supervisor(attempt).pid, *(who.pid for who in alive(attempt))]
        held = {os.readlink(f"/proc/{pid}/fd/{fd}") for pid in pids for fd in os.listdir(f"/proc/{pid}/fd")}
        assert str(tmp_path / "ledger") not in held
        assert os.getsid(pids[0]) == pids[0]
    rig.end(attempt, 0)
    rig.news.settled(attempt.run_id)


def test_a_supervisor_is_small_also_after_many_attempts(rig: LocalRig) -> None:
    for _ in range(40):
        before = rig.job("true")
        rig.backend.start(before)
        rig.news.settled(before.run_id)
    attempt = rig.attempt()
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    private = 0
    with open(f"/proc/{supervisor(attempt).pid}/smaps_rollup") as file:
        for line in file:
            if line.startswith(("Private_Clean", "Private_Dirty")):
                private += int(line.split()[1])
    assert private <= 12 * 1024, f"{private} KiB"
    rig.end(attempt, 0)
    rig.news.settled(attempt.run_id)


def test_a_supervisor_that_served_before_serves_again_and_is_killed_alone(rig: LocalRig) -> None:
    first = rig.job("true")
    rig.backend.start(first)
    rig.news.settled(first.run_id)
    eventually(lambda: not is_locked(f"{first.run_dir}/lock"))  # it has told its end before it is free
    attempts = [rig.attempt() for _ in range(3)]
    for attempt in attempts:
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
    assert supervisor(first) in [supervisor(attempt) for attempt in attempts]
    kill(supervisor(attempts[1]))
    assert rig.news.settled(attempts[1].run_id).reason == "SupervisorLost"
    for attempt in (attempts[0], attempts[2]):
        rig.end(attempt, 0)
        assert rig.news.settled(attempt.run_id).outcome is Outcome.COMPLETED
