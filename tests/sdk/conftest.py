"""Studies as real processes: written to a file, started, signalled, and ended with the test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenure.sdk.record import Record, RecordWriter, read_record


class Program:
    """A study in a process of its own.  It says `ready` on stdout when it may be signalled."""

    def __init__(self, process: subprocess.Popen[str], run_dir: Path) -> None:
        self.process, self.run_dir = process, run_dir

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ready(self) -> Program:
        assert self.line() == "ready", self.ended()
        return self

    def signal(self, signum: int) -> None:
        self.process.send_signal(signum)

    def ended(self) -> tuple[int, str, str]:
        """Exit code, the rest of stdout, and stderr."""
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err

    @property
    def record(self) -> Record:
        return read_record(self.run_dir)


@pytest.fixture
def on_platform(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """`on_platform(code, *args, **env)` starts a study the way the platform does."""
    started: list[subprocess.Popen[str]] = []
    run_dir = tmp_path / "runs" / "7.1"
    writer = RecordWriter(run_dir, by="supervisor")
    writer.opened(run_id="7.1", job_id="7", attempt=1, code={"digest": "submitted"})
    writer.close()

    def start(code: str, *args: str, **env: str) -> Program:
        script = tmp_path / "study.py"
        script.write_text(textwrap.dedent(code))
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("TENURE_", "RANK", "WORLD_"))}
        kept |= {"TENURE_RUN_DIR": str(run_dir), "TENURE_JOB_ID": "7", "TENURE_ATTEMPT": "1", "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            [sys.executable, str(script), *args], cwd=tmp_path, env={k: v for k, v in (kept | env).items() if v},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return Program(process, run_dir)

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its own session: children that a failed test left go too
        process.communicate()
