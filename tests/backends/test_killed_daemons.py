"""`kill -9` of the daemon, at any moment: its attempts go on, and none is lost or run twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.backends.local import processes
from tenure.domain.attempt import AttemptState
from tenure.domain.ids import JobId, run_id

from .local_rig import LocalRig, eventually

DAEMON = """
import os, sys, threading
from pathlib import Path
from tests.backends.local_rig import LocalRig
rig = LocalRig(Path(sys.argv[1]))
print("open", flush=True)
for _ in range(int(sys.argv[2])):
    rig.backend.start(rig.job("bash", "-c", "echo ran >> $TENURE_RUN_DIR/ran; read x < /dev/null; sleep 0.1; exit 7"))
print("asked", flush=True)
threading.Event().wait()
"""


def daemon(home: Path, count: int) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", DAEMON, str(home), str(count)], stdout=subprocess.PIPE, text=True, cwd=root, env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"}
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_a_daemon_killed_while_it_starts_loses_nothing_and_runs_nothing_twice(tmp_path: Path, seed: int) -> None:
    count = 16
    first = daemon(tmp_path, count)
    assert first.stdout is not None
    assert first.stdout.readline() == "open\n"
    wanted = random.Random(seed).randrange(count)
    eventually(lambda: len(list(tmp_path.glob("runs/*/spec.json"))) > wanted)
    first.send_signal(signal.SIGKILL)
    first.wait()
    first.stdout.close()
    rig = LocalRig(tmp_path)
    try:
        runs = [(run_id(JobId(str(k + 1)), 1), str(tmp_path / "runs" / f"{k + 1}.1")) for k in range(count)]
        seen = rig.backend.observe(runs)
        for k, (run, run_dir) in enumerate(runs):
            if seen[run].state is AttemptState.ABSENT:
                rig._count = k
                rig.backend.start(
                    rig.job("bash", "-c", "echo ran >> $TENURE_RUN_DIR/ran; read x < /dev/null; sleep 0.1; exit 7")
                )
            elif seen[run].state is AttemptState.ENDED:
                assert seen[run].exit_code == 7
                continue
            assert rig.news.settled(run).exit_code == 7
            assert (Path(run_dir) / "ran").read_text() == "ran\n"
        for _, run_dir in runs:
            assert (Path(run_dir) / "ran").read_text() == "ran\n"
    finally:
        rig.close()


def test_the_forkserver_of_a_killed_daemon_ends_and_no_supervisor_does(tmp_path: Path) -> None:
    first = daemon(tmp_path, 3)
    assert first.stdout is not None
    assert [first.stdout.readline() for _ in range(2)] == ["open\n", "asked\n"]
    below = processes.descendants(first.pid)
    server = next(pid for pid in below if "forkserver" in processes.command(pid))
    first.send_signal(signal.SIGKILL)
    first.wait()
    first.stdout.close()
    eventually(lambda: processes.identity(server) is None)
    rig = LocalRig(tmp_path)
    try:
        runs = [(run_id(JobId(str(k + 1)), 1), str(tmp_path / "runs" / f"{k + 1}.1")) for k in range(3)]
        eventually(lambda: all(seen.exit_code == 7 for seen in rig.backend.observe(runs).values()))
    finally:
        rig.close()
