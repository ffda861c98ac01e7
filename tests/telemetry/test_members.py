"""Who of a run is there: known by the environment, or by an ancestor's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tenure.telemetry.members import members
from tenure.telemetry.owners import lives

PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], env={}, stdin=sys.stdin, start_new_session=True)
dead = subprocess.Popen(["true"])
os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays unreaped
print(child.pid, dead.pid, flush=True)
child.wait()
"""


def test_a_process_and_what_it_started_with_an_empty_environment(tmp_path: Path) -> None:
    env = {"TENURE_JOB_ID": "7", "TENURE_RUN_DIR": str(tmp_path / "7.1")}
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", PARENT], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process:
        child, dead = map(int, process.stdout.readline().split())
        found = members(str(tmp_path / "7.1"))
        assert {member.pid for member in found} == {process.pid, child}, "and no zombie"
        assert (lives(child), lives(dead)) == (True, False)
        assert f"input() (pid {child})" in str(next(member for member in found if member.pid == child))
        assert members(str(tmp_path / "7.2")) == ()
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
    assert not lives(process.pid)


def test_a_process_whose_name_is_no_text_is_seen(tmp_path: Path) -> None:
    """The kernel cuts a name after fifteen bytes, in the middle of a letter if need be."""
    env = {"TENURE_JOB_ID": "7", "TENURE_RUN_DIR": str(tmp_path / "7.1")}
    rename = r"import ctypes; ctypes.CDLL(None).prctl(15, b'train-\xe8\xae'); print('named', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", rename], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert lives(process.pid)
        assert [member.pid for member in members(str(tmp_path / "7.1"))] == [process.pid]
        process.stdin.write(b"\n")
