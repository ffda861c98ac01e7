"""The whole tree ends: children that called setsid, orphans, crowds, and a shell's child that needs its time."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tenure.backends.local import processes
from tenure.backends.local.forkserver import MOST_IDLE
from tenure.domain.attempt import AttemptState, Stop, StopKind
from tenure.domain.lifecycle import Outcome

from .local_rig import LocalRig, alive, eventually, lines

CANCEL = Stop(kind=StopKind.CANCEL, reason="Cancelled", message="not needed", by="test", grace_s=2.0)
PREEMPT = Stop(kind=StopKind.PREEMPT, reason="Preempted", message="made room", by="test", grace_s=10.0)


def test_a_cancel_ends_those_who_called_setsid(rig: LocalRig) -> None:
    attempt = rig.job("bash", "-c", "setsid sleep 987 & sleep 986")
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    eventually(lambda: len(alive(attempt)) == 3)
    rig.backend.stop(attempt.run_id, attempt.run_dir, replace(CANCEL, grace_s=600.0))
    ended = rig.news.settled(attempt.run_id)  # they heard it: nobody waits for the grace to be over
    assert (ended.outcome, ended.signal) == (Outcome.CANCELLED, signal.SIGTERM)
    assert alive(attempt) == []


def test_those_who_left_the_session_and_ignore_sigterm_are_killed_after_the_grace(rig: LocalRig) -> None:
    attempt = rig.job(
        "bash",
        "-c",
        "trap '' TERM; (trap '' TERM; setsid bash -c 'trap \"\" TERM; while :; do sleep 100; done') & wait",
    )
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    eventually(lambda: len(alive(attempt)) >= 3)
    rig.backend.stop(attempt.run_id, attempt.run_dir, Stop(kind=StopKind.CANCEL, reason="Cancelled", grace_s=0.5))
    rig.news.settled(attempt.run_id)
    assert alive(attempt) == []


def test_the_child_that_works_on_is_waited_for_not_the_shell(rig: LocalRig, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(
        "import signal, time\n"
        "def leave(*_):\n"
        "    time.sleep(1.5)\n"
        "    open('saved', 'w').write('whole')\n"
        "    raise SystemExit(0)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "open('ready', 'w').close()\n"
        "while True: signal.pause()\n"
    )
    attempt = rig.job("sh", "-c", "python3 x.py; true")
    rig.backend.start(attempt)
    eventually((tmp_path / "ready").exists)
    rig.backend.stop(attempt.run_id, attempt.run_dir, PREEMPT)
    ended = rig.news.settled(attempt.run_id)
    assert (tmp_path / "saved").read_text() == "whole"
    assert ended.outcome is Outcome.INTERRUPTED
    assert ended.ended_at is not None
    assert ended.started_at is not None
    assert ended.ended_at - ended.started_at > 1_400_000


def test_the_program_that_a_handler_starts_to_save_does_not_hear_the_stop(rig: LocalRig, tmp_path: Path) -> None:
    """Those who are told are those who were there: `trap 'cp state /safe' TERM` must be able to finish its cp."""
    saver = "trap 'sleep 0.3 && touch saved.$K; exit 0' TERM; touch up.$K; while :; do sleep 0.05; done"
    attempt = rig.job(
        "bash", "-c", f'for K in 0 1 2 3 4 5 6 7; do K=$K bash -c "{saver.replace("$", chr(92) + "$")}" & done; wait'
    )
    rig.backend.start(attempt)
    eventually(lambda: all((tmp_path / f"up.{k}").exists() for k in range(8)))
    rig.backend.stop(attempt.run_id, attempt.run_dir, PREEMPT)
    assert rig.news.settled(attempt.run_id).outcome is Outcome.INTERRUPTED
    assert [k for k in range(8) if not (tmp_path / f"saved.{k}").exists()] == []


def test_what_a_finished_program_left_behind_is_ended(rig: LocalRig) -> None:
    attempt = rig.job("bash", "-c", "for i in $(seq 200); do sleep 900 & done; setsid sleep 901 & exit 0")
    rig.backend.start(attempt)
    ended = rig.news.settled(attempt.run_id)
    assert (ended.outcome, ended.exit_code) == (Outcome.COMPLETED, 0)
    assert alive(attempt) == []


def test_leftovers_that_ignore_sigterm_are_killed(rig: LocalRig) -> None:
    attempt = rig.job("bash", "-c", "(trap '' TERM; while :; do sleep 0.2; done) & exit 3")
    rig.backend.start(attempt)
    ended = rig.news.settled(attempt.run_id)
    assert (ended.outcome, ended.exit_code) == (Outcome.FAILED, 3)
    assert alive(attempt) == []


def test_a_stopped_process_hears_the_stop(rig: LocalRig) -> None:
    attempt = rig.job("sleep", "900")
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    (who,) = alive(attempt)
    os.kill(who.pid, signal.SIGSTOP)
    rig.backend.stop(attempt.run_id, attempt.run_dir, PREEMPT)
    assert rig.news.settled(attempt.run_id).signal == signal.SIGTERM


def test_who_cannot_be_killed_is_named_and_keeps_the_attempt_stopping(rig: LocalRig) -> None:
    """SIGKILL on a process in a frozen v1 group waits for the thaw: the nearest thing to a process stuck in a driver."""
    freezer = Path("/sys/fs/cgroup/freezer") / f"tenure-test-{os.getpid()}"
    attempt = rig.job("sleep", "900")
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    (who,) = alive(attempt)
    freezer.mkdir()
    try:
        (freezer / "cgroup.procs").write_text(str(who.pid))
        (freezer / "freezer.state").write_text("FROZEN")
        rig.backend.stop(attempt.run_id, attempt.run_dir, Stop(kind=StopKind.CANCEL, reason="Cancelled", grace_s=0.1))
        named = rig.news.wait(attempt.run_id, lambda seen: bool(seen.survivors))
        assert named.state is AttemptState.STOPPING
        assert [survivor.pid for survivor in named.survivors] == [who.pid]
        assert named.survivors[0].command == "sleep 900"
        seen = rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id]
        assert (seen.state, seen.survivors) == (AttemptState.STOPPING, named.survivors)
        assert processes.identity(who.pid) == who
        (freezer / "freezer.state").write_text("THAWED")
        ended = rig.news.settled(attempt.run_id)
        assert (ended.outcome, ended.survivors) == (Outcome.CANCELLED, ())
    finally:
        (freezer / "freezer.state").write_text("THAWED")
        eventually(lambda: processes.identity(who.pid) is None)
        freezer.rmdir()


def test_five_hundred_short_jobs_leave_no_zombie_and_no_descriptor(rig: LocalRig) -> None:
    def flow(count: int) -> None:
        attempts = [rig.job("true") for _ in range(count)]
        for attempt in attempts:
            rig.backend.start(attempt)
        for attempt in attempts:
            assert rig.news.settled(attempt.run_id, within_s=60).outcome is Outcome.COMPLETED

    def descriptors(pid: int) -> int:
        """None of a process that has just left."""
        try:
            return len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            return 0

    server = int(str(rig.backend.probe().details["forkserver_pid"]))
    flow(40)
    ours = descriptors(os.getpid())
    flow(460)
    eventually(lambda: descriptors(os.getpid()) <= ours)
    waiting = MOST_IDLE + 1  # supervisors that wait for another attempt
    eventually(lambda: len(processes.descendants(server)) <= waiting)
    eventually(lambda: all(processes.identity(pid) is not None for pid in processes.descendants(server)))  # no zombie
    eventually(lambda: descriptors(server) <= waiting + 12)
    eventually(lambda: all(descriptors(pid) <= 5 for pid in processes.descendants(server)))


def test_a_program_that_is_its_own_subreaper_leaves_nothing(rig: LocalRig) -> None:
    attempt = rig.python(
        "import ctypes, os, subprocess\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"
        "subprocess.Popen(['setsid', 'sh', '-c', 'sleep 900 & exit'])\n"
        "os._exit(0)\n"
    )
    rig.backend.start(attempt)
    assert rig.news.settled(attempt.run_id).outcome is Outcome.COMPLETED
    assert alive(attempt) == []


@pytest.mark.parametrize("cgroup", [True, False], ids=["with a control group", "by parentage alone"])
def test_forks_in_flight_do_not_escape_the_kill(rig: LocalRig, cgroup: bool) -> None:
    program = "trap '' TERM; while :; do (trap '' TERM; sleep 0.01; sleep 300) & sleep 0.02; done"
    attempt = rig.job("bash", "-c", program)
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    eventually(lambda: len(alive(attempt)) > 20)
    if (
        not cgroup and lines(attempt)[0]["cgroup"]
    ):  # take the second net away: everybody back to the group that we are in
        path = Path(lines(attempt)[0]["cgroup"])
        for pid in (path / "cgroup.procs").read_text().split():
            try:
                (path.parent / "cgroup.procs").write_text(pid)
            except OSError:
                continue
    rig.backend.stop(attempt.run_id, attempt.run_dir, Stop(kind=StopKind.CANCEL, reason="Cancelled", grace_s=0.2))
    rig.news.settled(attempt.run_id)
    assert alive(attempt) == []
