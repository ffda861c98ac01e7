"""1,000 x `true` on eight shares, submitted as one array: from the submission to the last end heard by SSE.

CPU seconds stand beside the wall time: they hold on a busy machine, where wall times are upper bounds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from .peers import HyperQueue, Slurm, TaskSpooler, present
from .rig import Home, Plan, Row, cpu_seconds, median, starters

TASKS = 1000
ONCE_S = 20.0  # a peer that takes longer is measured once


def measure(plan: Plan) -> Iterator[Row]:
    rounds = 1 if plan.quick else 3
    walls: list[float] = []
    daemon = starting = 0.0
    beside: dict[str, list[float]] = {}
    with present(plan, HyperQueue, TaskSpooler, Slurm) as (peers, absent):
        for _ in range(rounds):
            with Home(plan) as home, home.wire() as wire, home.stream() as stream:
                home.wait(wire, home.submit(wire, "true"))
                stream.forget()
                before = cpu_seconds(home.pid), sum(map(cpu_seconds, starters(home.path)))
                begun = time.time_ns()
                base = home.submit(wire, "true", array=f"1-{TASKS}")
                mine = base + "_"
                last = stream.wait(
                    lambda e, mine=mine: e["kind"] == "JobEnded" and e["job_id"].startswith(mine),
                    count=TASKS,
                    timeout_s=180,
                )
                walls.append((last - begun) / 1e9)
                counts = wire.call("GET", f"/api/v1/jobs/{base}")["array"]
                time.sleep(0.2)  # the last supervisors have settled: those that left count with the forkserver
                daemon += cpu_seconds(home.pid) - before[0]
                starting += sum(map(cpu_seconds, starters(home.path))) - before[1]
            for peer in peers:
                known = beside.setdefault(peer.name, [])
                if max(known, default=0) < ONCE_S:
                    known.append(peer.thousand())
    told = f"outcomes {counts.get('outcomes') or counts}"
    yield Row(
        what=f"{TASKS} x true, one array",
        unit="s",
        ours=median(walls),
        reach=6,
        peers={k: median(v) for k, v in beside.items()} | absent,
        note=told,
    )
    jobs = TASKS * rounds
    yield Row(what="its CPU a job: daemon", unit="ms", ours=daemon / jobs * 1000)
    yield Row(what="its CPU a job: forkserver, supervisor, job", unit="ms", ours=starting / jobs * 1000)
