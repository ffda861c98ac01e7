"""The local backend alone, without ledger and doors: what a start and an end cost.

    python -m benchmarks.local_backend [--jobs 400] [--at-once 8]

Latencies are one job at a time: from asking for the start to the program's own first clock reading, and from its last
instruction to the listener's call.  Throughput is short programs, `--at-once` at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path

from tenure.backends.local import LocalBackend
from tenure.domain.attempt import AttemptSpec, AttemptState, Observation, Process
from tenure.domain.ids import JobId, RunId, run_id
from tenure.domain.job import JobSpec

ENDS = (AttemptState.ENDED, AttemptState.LAUNCH_FAILED)


class Bench:
    def __init__(self, home: Path, at_once: int) -> None:
        self.home = home
        self.backend = LocalBackend(home / "daemon")
        self.free = threading.Semaphore(at_once)
        self.ended: dict[RunId, float] = {}
        self.news = threading.Condition()
        self.backend.open(self.hear)

    def hear(self, seen: Observation, /) -> None:
        if seen.state in ENDS and "code_changed" not in seen.details:
            with self.news:
                self.ended[seen.run_id] = time.time()
                self.news.notify_all()
            self.free.release()

    def start(self, job: str, *argv: str) -> AttemptSpec:
        run = run_id(JobId(job), 1)
        attempt = AttemptSpec(
            run_id=run, job_id=JobId(job), number=1, run_dir=str(self.home / "runs" / run), job=JobSpec(name="bench", argv=argv, workdir="/"),
            env={"PATH": os.defpath}, processes=(Process(rank=0),),
        )  # fmt: skip
        self.free.acquire()
        self.backend.start(attempt)
        return attempt

    def wait(self, run: RunId) -> float:
        with self.news:
            self.news.wait_for(lambda: run in self.ended, timeout=60)
            return self.ended[run]


def quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        name: round(ordered[min(len(ordered) - 1, int(len(ordered) * q))], 2)
        for name, q in (("p50", 0.5), ("p99", 0.99))
    }


def private_kib(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(("Private_Clean", "Private_Dirty")))


def measure(jobs: int, at_once: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as home:
        bench = Bench(Path(home), at_once)
        starts, ends = [], []
        for k in range(min(jobs, 200)):
            asked = time.time()
            attempt = bench.start(f"a{k}", "bash", "-c", "echo $EPOCHREALTIME")
            ended = bench.wait(attempt.run_id)
            said = float((Path(attempt.run_dir) / "stdout.log").read_text().replace(",", "."))
            starts.append((said - asked) * 1e3)
            ends.append((ended - said) * 1e3)
        began = time.monotonic()
        for attempt in [bench.start(f"b{k}", "true") for k in range(jobs)]:
            bench.wait(attempt.run_id)
        took = time.monotonic() - began
        sleeper = bench.start("c", "sleep", "2")
        journal = Path(sleeper.run_dir) / "supervisor.jsonl"
        while not (journal.exists() and '"started"' in journal.read_text()):
            time.sleep(0.01)
        supervisor = json.loads(journal.read_text().splitlines()[0])["pid"]
        memory = 0
        for _ in range(5):  # the most of half a second: just after its fork a page still counts as shared
            memory = max(memory, private_kib(supervisor))
            time.sleep(0.1)
        bench.wait(sleeper.run_id)
        bench.backend.close()
    return {
        "start_ms": quantiles(starts),
        "end_ms": quantiles(ends),
        "short_jobs_per_s": round(jobs / took),
        "supervisor_private_kib": memory,
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--at-once", type=int, default=8)
    chosen = parser.parse_args()
    print(json.dumps(measure(chosen.jobs, chosen.at_once), indent=2))
