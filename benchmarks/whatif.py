"""What-if: `why` with the expected start behind 9,999 others, and a week of 20,000 jobs under two policies."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tenure.domain.events import EventKind
from tenure.domain.ids import Instant, JobId
from tenure.domain.job import JobSpec
from tenure.domain.lifecycle import JobEvent, JobState
from tenure.ledger import Change, Ledger, NewJob
from tenure.manifests.wire import spec_to_json

from .rig import Home, Plan, Row, median, tenure

AHEAD = 9_999
FORMS = 27  # shapes of the jobs ahead
WEEK_US = 7 * 86_400 * 1_000_000
JOBS = 20_000


def measure(plan: Plan) -> Iterator[Row]:
    yield from line(plan)
    yield from week(plan)


def line(plan: Plan) -> Iterator[Row]:
    with Home(plan) as home, home.wire() as wire, home.stream() as stream:
        blocker = home.submit(wire, "sleep", "100000", shares=8, gpu_memory="16Gi", name="blocker", time="2h")
        stream.wait(lambda e: e["job_id"] == blocker and e["kind"] == "JobStarted")
        each, arrays = AHEAD // FORMS, []
        for n in range(FORMS):
            size = each if n < FORMS - 1 else AHEAD - each * (FORMS - 1)
            asks = {"shares": 1 + n % 3, "gpu_memory": f"{1 + n // 3}Gi", "time": f"{5 + n}m"}
            arrays.append(home.submit(wire, "true", array=f"1-{size}", name=f"kind-{n}", **asks))
        last = home.submit(wire, "true", name="last")
        while wire.call("GET", f"/api/v1/jobs/{last}").get("position") != AHEAD:
            time.sleep(0.1)
        path = f"/api/v1/jobs/{last}/why"
        told = wire.call("GET", path)
        spared = [_ms(wire, f"{path}?forecast=false") for _ in range(plan.times(20))]
        expected = [_ms(wire, path) for _ in range(plan.times(20))]
        for job in (*arrays, last, blocker):
            wire.call("POST", f"/api/v1/jobs/{job}:cancel", {})
    basis = told["expected_start"]["basis"] if told["expected_start"] else told["expected_start_reason"]
    yield Row(what=f"why behind {AHEAD}, no forecast", unit="ms", ours=median(spared), reach=50, note=f"{FORMS} shapes")
    yield Row(what=f"why behind {AHEAD}", unit="ms", ours=median(expected), reach=1000, note=str(basis))


def _ms(wire: object, path: str) -> float:
    begun = time.perf_counter()
    wire.call("GET", path)  # type: ignore[attr-defined]
    return (time.perf_counter() - begun) * 1000


def week(plan: Plan) -> Iterator[Row]:
    jobs = JOBS // 10 if plan.quick else JOBS
    with Home(plan) as home:
        home.cli("down")
        live_through(home.path / "ledger.sqlite3", jobs)
        begun = time.perf_counter()
        answer = subprocess.run(
            [tenure(), "policy", "try", str(home.path / "policy"), "-o", "json"],
            env=home.env, check=True, capture_output=True,
        )  # fmt: skip
        took = time.perf_counter() - begun
        report_begun = time.perf_counter()
        home.cli("capacity", "report", "--output", str(home.work / "report.html"))
        report = time.perf_counter() - report_begun
    total = json.loads(answer.stdout)["before"]["total"]
    note = f"both sides; {total['started']} started, half waited {(total['wait_p50_s'] or 0) / 3600:.1f} h"
    yield Row(what=f"policy try, a week of {jobs} jobs", unit="s", ours=took, reach=30, note=note)
    yield Row(what=f"capacity report, {jobs} jobs", unit="s", ours=report)


def live_through(path: Path, count: int, *, seed: int = 7) -> None:
    """Jobs of 15 shapes that would keep eight shares nine tenths busy, one after the other in time, into a ledger."""
    rng = random.Random(seed)
    now = time.time_ns() // 1000
    mean_s = WEEK_US / 1e6 * 8 * 0.9 / count / 2
    ledger = Ledger.open(f"sqlite:///{path}")
    arrivals = sorted(now - WEEK_US + rng.randrange(WEEK_US - 3_600_000_000) for _ in range(count))
    with ledger.transaction(durable=False) as tx:
        first = tx.next_job_number(count)
        specs = [
            JobSpec(name=f"kind-{n % 5}", argv=("true",), workdir="/", shares=shares, gpu_memory=memory << 30)
            for n, (shares, memory) in enumerate((s, m) for s in (1, 2, 3) for m in (1, 2, 3, 4, 5))
        ]
        texts = [json.dumps(spec_to_json(spec)) for spec in specs]
        steps: dict[JobEvent, list[Change]] = {JobEvent.ADMIT: [], JobEvent.START: [], JobEvent.FINISH: []}
        for n, at in enumerate(arrivals):
            job, kind = JobId(str(first + n)), rng.randrange(len(specs))
            end = at + 1_000_000 + int(rng.expovariate(1 / mean_s) * 1e6)
            new = NewJob(id=job, name=specs[kind].name, spec=texts[kind], queue="default", cluster_queue="general")
            tx.add_jobs([new], Instant(at))
            if end < now:
                run = {"admitted_at": at, "attempts": 1, "run_id": f"{job}.1"}
                _step(steps, job, JobEvent.ADMIT, EventKind.JOB_ADMITTED, JobState.QUEUED, at, **run)
                _step(steps, job, JobEvent.START, EventKind.JOB_STARTED, JobState.ADMITTED, at, started_at=at)
                done = {"ended_at": end, "outcome": "completed", "exit_code": 0}
                _step(steps, job, JobEvent.FINISH, EventKind.JOB_ENDED, JobState.RUNNING, end, **done)
        for changes in steps.values():
            for begin in range(0, len(changes), 1000):
                tx.move_many(changes[begin : begin + 1000])
    ledger.close()


def _step(
    steps: dict[JobEvent, list[Change]], job: JobId, event: JobEvent, kind: EventKind, state: JobState, at: int, **fields: object
) -> None:  # fmt: skip
    change = Change(job_id=job, event=event, kind=kind, at=Instant(at), expect_state=state, fields=fields)
    steps[event].append(change)


if __name__ == "__main__":
    sys.exit("run it as `python -m benchmarks whatif`")
