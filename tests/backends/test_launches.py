"""Launches that fail say why in a sentence; odd names, places and environments work or are refused whole."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenure.backends.local import LocalBackend
from tenure.backends.local.layout import REQUESTS
from tenure.backends.local.locks import is_locked
from tenure.backends.local.requests import Requests, ask
from tenure.domain.attempt import AttemptSpec, AttemptState, Observation, Stop, StopKind
from tenure.domain.errors import LaunchError, Unavailable
from tenure.domain.job import GangPolicy, LogSpec
from tenure.domain.lifecycle import Outcome
from tenure.sdk.record import read_record
from tenure.testing.backend_contract import SETTLED

from .local_rig import LocalRig, alive, eventually, lines


def launch(rig: LocalRig, attempt: AttemptSpec) -> Observation:
    rig.backend.start(attempt)
    ended = rig.news.settled(attempt.run_id)
    assert alive(attempt) == []
    return ended


def refused(rig: LocalRig, attempt: AttemptSpec) -> Observation:
    failed = launch(rig, attempt)
    assert failed.state is AttemptState.LAUNCH_FAILED
    assert failed.started_at is None
    assert all(line["kind"] != "started" for line in lines(attempt))
    assert read_record(attempt.run_dir).outcome == "failed"
    return failed


def test_a_program_that_does_not_exist(rig: LocalRig) -> None:
    failed = refused(rig, rig.job("no-such-program"))
    assert (failed.exit_code, failed.reason) == (127, "CommandNotFound")
    assert "no-such-program" in failed.message


def test_a_file_that_cannot_be_executed(rig: LocalRig, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    failed = refused(rig, rig.job("./data"))
    assert (failed.exit_code, failed.reason) == (126, "NotExecutable")


def test_an_interpreter_that_does_not_exist(rig: LocalRig, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    failed = refused(rig, rig.job("./program"))
    assert (failed.exit_code, failed.reason) == (127, "InterpreterNotFound")


def test_a_program_without_a_first_line_is_run_by_the_shell(rig: LocalRig, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("exit 5\n")
    program.chmod(0o755)
    assert launch(rig, rig.job("./program")).exit_code == 5


@pytest.mark.parametrize("kind", ["missing", "a file"])
def test_a_working_directory_that_cannot_be_entered(rig: LocalRig, tmp_path: Path, kind: str) -> None:
    (tmp_path / "a file").write_text("")
    failed = refused(rig, rig.job("true", workdir=str(tmp_path / kind)))
    assert (failed.exit_code, failed.reason) == (126, "WorkdirUnusable")
    assert kind in failed.message


def test_an_output_that_cannot_be_written(rig: LocalRig, tmp_path: Path) -> None:
    failed = refused(rig, rig.job("true", logs=LogSpec(output="missing/%j.out")))
    assert (failed.exit_code, failed.reason) == (126, "LogUnwritable")
    assert str(tmp_path / "missing") in failed.message


def test_an_output_that_nobody_reads_does_not_hang_the_start(rig: LocalRig, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refused(rig, rig.job("true", logs=LogSpec(output="pipe"))).reason == "LogUnwritable"


def test_a_megabyte_of_environment_works(rig: LocalRig) -> None:
    env = {f"V{i}": "x" * 100_000 for i in range(10)}
    attempt = rig.job("bash", "-c", "test ${#V9} = 100000 && exit 3", env=env)
    assert launch(rig, attempt).exit_code == 3


def test_a_command_line_that_is_too_long_is_told_how_long_it_is(rig: LocalRig) -> None:
    failed = refused(rig, rig.job("true", *["x" * 99_999] * 40))
    assert (failed.exit_code, failed.reason) == (126, "EnvironmentTooLarge")
    told = re.search(r"have (\d+) bytes together", failed.message)
    assert told is not None
    assert 4_000_000 < int(told[1]) < 4_100_000


def test_one_variable_that_is_too_long_is_named(rig: LocalRig) -> None:
    failed = refused(rig, rig.job("true", env={"HUGE": "x" * 1_000_000}))
    assert (failed.exit_code, failed.reason) == (126, "EnvironmentTooLarge")
    assert "HUGE" in failed.message


@pytest.mark.parametrize(
    "fields", [{"env": {"A=B": "x"}}, {"env": {"A": "x\0y"}}, {"env": {"": "x"}}, {"workdir": "/tmp/\0"}], ids=str
)
def test_what_no_program_can_be_given_is_refused(rig: LocalRig, fields: dict[str, Any]) -> None:
    failed = refused(rig, rig.job("true", **fields))
    assert (failed.exit_code, failed.reason) == (126, "InvalidCommand")


def test_a_nul_in_the_command_or_in_a_name_is_refused(rig: LocalRig) -> None:
    assert refused(rig, rig.job("true", "a\0b")).reason == "InvalidCommand"
    assert refused(rig, rig.job("true", name="a\0b", logs=LogSpec(output="%x"))).reason == "InvalidCommand"


@pytest.mark.parametrize("name", ['训练 "x" $(rm) \n', "-rf", "a/b/../c", "\udcff", "'"])
def test_names_are_only_names(rig: LocalRig, tmp_path: Path, name: str) -> None:
    attempt = rig.job("printenv", "NAME", name=name, env={"NAME": name}, logs=LogSpec(output="%x-%j.out"))
    assert launch(rig, attempt).exit_code == 0
    (out,) = tmp_path.glob("*.out")
    assert os.fsencode(name) + b"\n" == out.read_bytes()


def test_a_home_with_spaces_and_other_letters_and_a_long_path(tmp_path: Path) -> None:
    home = tmp_path / "家 mit Leerzeichen" / ("sehr-lang-" * 20)
    home.mkdir(parents=True)
    rig = LocalRig(home)
    try:
        attempt = rig.attempt()
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        rig.backend.stop(attempt.run_id, attempt.run_dir, Stop(kind=StopKind.CANCEL, reason="Cancelled"))
        assert rig.news.settled(attempt.run_id).outcome is Outcome.CANCELLED
    finally:
        rig.close()


def test_a_script_runs_by_its_first_line_and_is_private(rig: LocalRig) -> None:
    attempt = rig.job(script="#!/usr/bin/env python3\nimport sys\nsys.exit(int(sys.argv[1]))\n", script_args=("9",))
    assert launch(rig, attempt).exit_code == 9
    for name, mode in (("script", 0o700), ("spec.json", 0o600)):
        assert stat.S_IMODE((Path(attempt.run_dir) / name).stat().st_mode) == mode


def test_a_script_without_a_first_line_is_run_by_the_shell(rig: LocalRig) -> None:
    assert launch(rig, rig.job(script="exit 4\n")).exit_code == 4


def test_a_job_reads_nothing_and_ignores_nothing(rig: LocalRig) -> None:
    """Standard input is empty, no descriptor leaks in, and no signal is ignored or blocked by inheritance."""
    attempt = rig.job(
        "bash", "-c", "cat; ls /proc/$$/fd; ps -o sid= -p $$; echo $$; exec grep -E 'SigBlk|SigIgn' /proc/self/status"
    )
    assert launch(rig, attempt).exit_code == 0
    told = (Path(attempt.run_dir) / "stdout.log").read_text().split()
    assert told[:3] == ["0", "1", "2"]
    masks = dict(itertools.pairwise(told))
    assert int(masks["SigBlk:"], 16) == 0
    glibc_keeps = 1 << 31 | 1 << 32  # signals 32 and 33: its posix_spawn, as make uses it, leaves them ignored for good
    assert int(masks["SigIgn:"], 16) & ~glibc_keeps == 0
    assert told[3] == told[4]  # leader of a session of its own


def test_a_gang_starts_whole_or_not_at_all(rig: LocalRig, tmp_path: Path) -> None:
    """The log of the last rank cannot be written: no rank's program runs."""
    (tmp_path / "out.3").mkdir()
    attempt = rig.job("touch", "ran", processes=4, gang=True, logs=LogSpec(output="out.%t"))
    failed = refused(rig, attempt)
    assert failed.reason == "LogUnwritable"
    assert not (tmp_path / "ran").exists()


def test_a_work_list_that_cannot_start_is_a_failed_launch(rig: LocalRig) -> None:
    failed = refused(rig, rig.job("no-such-program", processes=2, policy=GangPolicy.EACH, completions=4))
    assert failed.exit_code == 127


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tenure-test", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def fill(disk: Path) -> None:
    with open(disk / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    assert os.statvfs(disk).f_bfree == 0


def test_a_full_disk_does_not_hide_the_end(small_disk: Path) -> None:
    rig = LocalRig(small_disk)
    try:
        attempt = rig.attempt()
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        fill(small_disk)
        rig.end(attempt, 3)
        ended = rig.news.settled(attempt.run_id)
        assert (ended.outcome, ended.exit_code) == (Outcome.FAILED, 3)
        assert "disk" in ended.message
        assert lines(attempt)[-1]["kind"] == "ended"
        assert read_record(attempt.run_dir).outcome == "failed"
        refused_too = rig.job("true", env={"BIG": "x" * 100_000})
        with pytest.raises(LaunchError) as caught:
            rig.backend.start(refused_too)
        assert caught.value.code == "DiskFull"
        assert not Path(refused_too.run_dir).exists()
    finally:
        rig.close()


@pytest.mark.parametrize("pages", range(7))
def test_a_start_on_an_almost_full_disk_is_refused_or_made_whole(small_disk: Path, pages: int) -> None:
    rig = LocalRig(small_disk)
    try:
        (small_disk / "runs").mkdir()
        (small_disk / "spare").write_bytes(b"x" * 4096 * pages)
        fill(small_disk)
        (small_disk / "spare").unlink()
        attempt = rig.job("sh", "-c", "exit 4")
        refusal = None
        try:
            rig.backend.start(attempt)
        except LaunchError as error:
            refusal = error.code
        if refusal is not None:
            assert refusal == "DiskFull"
            return
        seen = rig.news.settled(attempt.run_id)
        if seen.state is AttemptState.LAUNCH_FAILED:
            assert seen.reason in ("DiskFull", "LogUnwritable")
            assert seen.started_at is None
        else:
            assert seen.exit_code == 4
    finally:
        rig.close()


def test_a_stop_on_a_full_disk_still_stops(small_disk: Path) -> None:
    rig = LocalRig(small_disk)
    try:
        attempt = rig.attempt()
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        fill(small_disk)
        rig.backend.stop(attempt.run_id, attempt.run_dir, Stop(kind=StopKind.CANCEL, reason="Cancelled"))
        assert rig.news.settled(attempt.run_id).outcome is Outcome.CANCELLED
        assert lines(attempt)[-1]["outcome"] == "cancelled"
        assert read_record(attempt.run_dir).outcome == "cancelled"
    finally:
        rig.close()


def test_a_request_that_a_full_disk_has_cut_is_no_request_and_spoils_none(small_disk: Path) -> None:
    """Nobody is there to hear it: it is written whole, or whoever asks is told."""
    path = small_disk / REQUESTS
    path.write_bytes(b'{"id": "0", "kind": "' + b"x" * (4096 - 40) + b'"}\n')  # the page has room for a part of a line
    fill(small_disk)
    with pytest.raises(OSError, match="No space"):
        ask(str(small_disk), {"kind": "stop", "stop": "cancel"})
    (small_disk / "filler").unlink()
    assert not ask(str(small_disk), {"kind": "stop", "stop": "preempt"})
    _, *found = Requests(str(small_disk)).read()
    assert [request["stop"] for request in found] == ["preempt"]


def test_a_home_that_cannot_be_written_refuses_and_leaves_nothing(rig: LocalRig, tmp_path: Path) -> None:
    home = tmp_path / "read-only"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tenure-test", home], check=True)
    try:
        attempt = rig.job("true")
        with pytest.raises(LaunchError) as caught:
            rig.backend.start(replace(attempt, run_dir=str(home / "runs" / "1.1")))
        assert (caught.value.code, caught.value.exit_code) == ("RunDirUnusable", 126)
        assert "Read-only" in caught.value.message
        with pytest.raises(Unavailable, match="Read-only"):
            LocalBackend(home / "daemon").open(rig.news)
    finally:
        subprocess.run(["umount", home], check=True)


def test_cards_are_seen_by_the_rank_that_has_them(rig: LocalRig) -> None:
    attempt = rig.job(
        "bash", "-c", 'echo "$RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES"; test "$MASTER_PORT" -gt 0',
        processes=2, gang=True, cards=[("GPU-a",), ("GPU-b", "GPU-c")],
    )  # fmt: skip
    assert launch(rig, attempt).outcome is Outcome.COMPLETED
    told = [(Path(attempt.run_dir) / name).read_text() for name in ("stdout.log", "stdout.1.log")]
    assert told == ["0 2 0 127.0.0.1 PCI_BUS_ID GPU-a\n", "1 2 1 127.0.0.1 PCI_BUS_ID GPU-b,GPU-c\n"]


def test_a_refused_launch_holds_nothing(rig: LocalRig) -> None:
    attempt = rig.job("no-such-program")
    refused(rig, attempt)
    eventually(lambda: not is_locked(f"{attempt.run_dir}/lock"))
    group = lines(attempt)[0]["cgroup"]
    assert not (group and Path(group).exists())
    assert not (Path(attempt.run_dir) / "control").exists()


def test_a_machine_without_another_process_refuses_and_recovers(rig: LocalRig) -> None:
    group = Path("/sys/fs/cgroup/pids") / f"tenure-test-{os.getpid()}"
    server = int(str(rig.backend.probe().details["forkserver_pid"]))
    eventually(
        lambda: Path(f"/proc/{server}/task/{server}/children").read_text()
    )  # it says that it is ready before one is kept ready
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(server))
        (group / "pids.max").write_text("1")
        first, second = rig.attempt(), rig.attempt()
        rig.backend.start(first)  # by the supervisor that was kept ready
        rig.news.running(first.run_id)
        rig.backend.start(second)
        failed = rig.news.settled(second.run_id)
        assert (failed.state, failed.reason) == (AttemptState.LAUNCH_FAILED, "OutOfProcesses")
        assert rig.backend.probe().details["forkserver_pid"] == server
        (group / "pids.max").write_text("max")
        rig.backend.start(second)
        rig.news.running(second.run_id)
        for attempt in (first, second):
            rig.end(attempt, 0)
            rig.news.wait(attempt.run_id, lambda seen: seen.outcome is Outcome.COMPLETED)
    finally:
        rig.close()
        eventually(lambda: (group / "cgroup.procs").read_text() == "")
        group.rmdir()
        rig.open()


def test_a_machine_that_never_had_another_process_does_not_end_what_starts_jobs(rig: LocalRig) -> None:
    group = Path("/sys/fs/cgroup/pids") / f"tenure-test-first-{os.getpid()}"
    group.mkdir()
    try:
        for _ in range(5):  # before or after its first supervisor is made ready: neither may cost it its life
            rig.close()
            rig.open()
            server = int(str(rig.backend.probe().details["forkserver_pid"]))
            (group / "cgroup.procs").write_text(str(server))
            (group / "pids.max").write_text("1")
            running = []
            for _ in range(2):  # the one that was kept ready serves one at most
                attempt = rig.attempt()
                rig.backend.start(attempt)
                seen = rig.news.wait(attempt.run_id, lambda seen: seen.state in (AttemptState.RUNNING, *SETTLED))
                if seen.state is not AttemptState.RUNNING:
                    break
                running.append(attempt)
            assert (seen.state, seen.reason) == (AttemptState.LAUNCH_FAILED, "OutOfProcesses")
            assert rig.backend.probe().details["forkserver_pid"] == server
            (group / "pids.max").write_text("max")
            for attempt in running:
                rig.end(attempt, 0)
                rig.news.settled(attempt.run_id)
    finally:
        rig.close()
        eventually(lambda: (group / "cgroup.procs").read_text() == "")
        group.rmdir()
        rig.open()


@pytest.mark.parametrize("kernel", ["new", "old"])
def test_a_process_begins_inside_its_control_group(tmp_path: Path, kernel: str) -> None:
    program = f"""
import os
from tenure.backends.local.cgroup import Cgroup
from tenure.backends.local.launch import Plan, spawn

def refuse(self):
    raise OSError(38, "Function not implemented")

if {kernel == "old"}:
    Cgroup.fork = refuse
group = Cgroup.create(f"tenure-test-{{os.getpid()}}")
pid, report = spawn(
    Plan(0, ["cat", "/proc/self/cgroup"], dict(os.environ), "/", "{tmp_path}/out", "{tmp_path}/err", group), gate=None
)
assert os.waitpid(pid, 0) == (pid, 0), open("{tmp_path}/err").read()
assert os.read(report, 100) == b""
if group is not None:
    print(os.path.basename(group.path))
    group.remove()
    assert not os.path.exists(group.path)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    inside = (tmp_path / "out").read_text()
    assert inside
    assert done.stdout.strip() in inside  # on a machine without such groups: nowhere, and it ran all the same
