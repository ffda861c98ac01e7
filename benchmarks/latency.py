"""From a submission to the first instruction of its job, with an empty queue.

The job is `date +%s%N`: what it prints is taken for its first instruction, so that exec and the dynamic linker are in,
for ours and for every peer.  One after the other, each waited for, all kinds in turn within one run.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

from .peers import HyperQueue, Slurm, TaskSpooler, present
from .rig import Home, Plan, Row, Wire, median, percentile, tenure

COUNT = 200


def measure(plan: Plan) -> Iterator[Row]:
    rounds = plan.times(COUNT)
    took: dict[str, list[float]] = {}
    with Home(plan) as home, home.wire() as wire, present(plan, HyperQueue, TaskSpooler, Slurm) as (peers, absent):
        for _ in range(5):
            over_rest(home, wire)
        for i in range(rounds):
            took.setdefault("rest", []).append(over_rest(home, wire))
            for peer in peers:
                if not isinstance(peer, Slurm):
                    took.setdefault(peer.name, []).append(peer.one())
            if i % 10 == 0:
                took.setdefault("cli", []).append(over_cli(home, wire))
                for peer in peers:
                    if isinstance(peer, Slurm):
                        took.setdefault("Slurm srun", []).append(peer.srun())
                        took.setdefault("Slurm sbatch", []).append(peer.one())
    for name, share, reach in (("p50", 0.5, 25.0), ("p99", 0.99, 100.0)):
        beside: dict[str, float | str] = {
            k: percentile(v, share)
            for k, v in took.items()
            if k not in {"rest", "cli"} and (share < 0.9 or len(v) > 90)
        }
        yield Row(
            what=f"submit -> first instruction, REST, {name}",
            unit="ms",
            reach=reach,
            ours=percentile(took["rest"], share),
            peers=beside | absent,
        )
    programs: dict[str, float | str] = {
        k: median(v) for k, v in took.items() if k.startswith("Slurm") or k == "task-spooler"
    }
    yield Row(what="`tenure submit` -> first instruction, p50", unit="ms", ours=median(took["cli"]), peers=programs)


def over_rest(home: Home, wire: Wire) -> float:
    request = Wire.request("POST", "/api/v1/jobs", home.job("date", "+%s%N"))
    begun = time.time_ns()
    wire.send(request)
    status, job = wire.answer()
    if status != 201:
        raise RuntimeError(f"{status} {job}")
    home.wait(wire, job["id"])
    return (int(home.output(f"{job['id']}.1")) - begun) / 1e6


def over_cli(home: Home, wire: Wire) -> float:
    command = [tenure(), "submit", "--shares", "1", "--gpu-memory", "1Gi", "--", "date", "+%s%N"]
    begun = time.time_ns()
    done = subprocess.run(command, env=home.env, cwd=home.work, check=True, capture_output=True, text=True)
    job = done.stdout.strip()
    home.wait(wire, job)
    return (int(home.output(f"{job}.1")) - begun) / 1e6
