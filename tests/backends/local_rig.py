"""Builders for attempts of the local backend: programs whose end a test decides through a FIFO."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tenure.backends.local import LocalBackend, processes, supervisor, wire
from tenure.backends.local.clock import Clock
from tenure.backends.local.journal import read_lines
from tenure.backends.local.layout import SPEC
from tenure.domain.attempt import AttemptSpec, Process
from tenure.domain.ids import JobId, run_id
from tenure.domain.job import JobSpec
from tenure.testing.backend_contract import News

WAITS = ': > "$GATE.${RANK:-0}.up"; read code < "$GATE.${RANK:-0}"; exit $code'


class BeginsWith(Clock):
    """A supervisor's clock whose seconds stand still until a file appears: until a program has set itself up."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._began: float | None = None

    def monotonic(self) -> float:
        now = super().monotonic()
        if self._began is None and self._file.exists():
            self._began = now
        return 0.0 if self._began is None else now - self._began


class LocalRig:
    """See `tenure.testing.backend_contract.Rig`."""

    def __init__(self, home: Path, *, boot_id: str | None = None) -> None:
        self.home, self.boot_id = home, boot_id
        self._count = 0
        self.open()

    def open(self) -> None:
        self.news = News()
        self.backend = LocalBackend(self.home / "daemon", boot_id=self.boot_id)
        self.backend.open(self.news)

    def close(self) -> None:
        self.backend.close()

    def restart(self) -> None:
        self.close()
        self.open()

    def supervise(self, attempt: AttemptSpec, *, clock: Clock) -> threading.Thread:
        """Start it under a supervisor with another clock.  The thread ends when the supervisor has."""
        run_dir = Path(attempt.run_dir)
        run_dir.mkdir(parents=True)
        (run_dir / SPEC).write_text(json.dumps(wire.spec(attempt)))
        pid = os.fork()
        if pid == 0:
            try:
                supervisor.supervise(
                    attempt.run_dir, state_dir=str(self.home / "daemon"), boot=processes.boot_id(), clock=clock
                )
            finally:
                os._exit(0)
        waiter = threading.Thread(target=os.waitpid, args=(pid, 0))
        waiter.start()
        return waiter

    def job(
        self,
        *argv: str,
        processes: int = 1,
        env: Mapping[str, str] | None = None,
        number: int = 1,
        job_id: str | None = None,
        cards: Sequence[tuple[str, ...]] = (),
        **fields: Any,
    ) -> AttemptSpec:
        """An attempt at any job."""
        self._count += 1
        job = JobId(job_id or str(self._count))
        fields.setdefault("workdir", str(self.home))
        fields.setdefault("name", f"job-{job}")
        run = run_id(job, number)
        directory = self.home / "runs" / run
        return AttemptSpec(
            run_id=run,
            job_id=job,
            number=number,
            run_dir=str(directory),
            job=JobSpec(argv=argv, processes=processes, **fields),
            env={"PATH": os.environ["PATH"], "TENURE_RUN_DIR": str(directory), **(env or {})},
            processes=tuple(Process(rank=k, cards=cards[k] if cards else ()) for k in range(processes)),
        )

    def python(self, program: str, **fields: Any) -> AttemptSpec:
        """An attempt at a Python program."""
        return self.job(sys.executable, "-I", "-S", "-c", program, **fields)

    def attempt(self, *, processes: int = 1, stubborn: bool = False) -> AttemptSpec:
        gate = self.home / f"gate-{self._count + 1}"
        for rank in range(processes):
            os.mkfifo(f"{gate}.{rank}")
        program = f"trap '' TERM; {WAITS}" if stubborn else WAITS
        return self.job(
            "bash", "-c", program, processes=processes, gang=processes > 1, env={"GATE": str(gate)}, grace_s=5.0
        )

    def ready(self, attempt: AttemptSpec) -> None:
        eventually(lambda: all(Path(f"{attempt.env['GATE']}.{p.rank}.up").exists() for p in attempt.processes))

    def unstartable(self) -> AttemptSpec:
        return self.job("there-is-no-such-program")

    def end(self, attempt: AttemptSpec, exit_code: int, *, rank: int = 0) -> None:
        Path(f"{attempt.env['GATE']}.{rank}").write_text(f"{exit_code}\n")


def alive(attempt: AttemptSpec) -> list[processes.Identity]:
    """Every living process that was started with the attempt's run directory in its environment."""
    found = []
    for pid in processes.everyone():
        who = processes.identity(pid)
        if who is not None and processes.environ_value(pid, "TENURE_RUN_DIR") == attempt.run_dir:
            found.append(who)
    return found


def lines(attempt: AttemptSpec) -> list[dict[str, Any]]:
    """The supervisor's journal."""
    return read_lines(f"{attempt.run_dir}/supervisor.jsonl")


def eventually(holds: Callable[[], bool], *, within_s: float = 20.0) -> None:
    """For what nothing announces (the kernel's own state): look again until it holds, or fail."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"did not come true within {within_s} s"
        time.sleep(0.01)
