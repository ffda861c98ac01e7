"""The mind alone: Kueue's recorded decisions, its own generators in virtual time, growth, and a cycle without news.

Times are CPU seconds of one process without a platform; each scale has a process of its own, so that memory is its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tenure.domain.ids import Instant, WorkloadKey
from tenure.engine import Engine
from tenure.testing.lab import policy, workload

from .rig import Plan, Row, median

HERE = Path(__file__).parent
CORPUS = sorted((HERE.parent / "tests" / "engine" / "data").glob("*.jsonl.gz"))
PER_COHORT = {"admissions": 4215, "evictions": 1215, "makespan_ms": 76_905}  # the real scheduler's
ADMISSIONS = 300


def measure(plan: Plan) -> Iterator[Row]:
    yield corpus()
    yield from generator("baseline", reach=15)
    if not plan.quick:
        yield from generator("large-scale", reach=90, memory=600)
    few, many = (median([busy(n) for _ in range(3)]) for n in (1_000, 10_000))
    yield Row(what="growth: 10 x the pending", unit="x CPU", ours=many / few, reach=12, note=f"{ADMISSIONS} admissions")
    yield Row(what="a cycle, 10,000 pending, no news", unit="ms", ours=quiet(plan.times(200)), reach=1)


def corpus() -> Row:
    said = _run("-m", "tenure.testing.conformance", *map(str, CORPUS)).splitlines()[-1]
    found = re.fullmatch(r"agree (\d+) of (\d+)", said)
    share = 100 * int(found[1]) / int(found[2]) if found else None
    return Row(what="corpus of the real scheduler", unit="%", ours=share, reach=100, more=True, note=said)


def generator(scale: str, *, reach: float, memory: float | None = None) -> Iterator[Row]:
    said = _run(str(HERE / "engine_baseline.py"), scale)
    told = {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", said)}
    yield Row(what=f"{scale} generator", unit="s CPU", ours=told["cpu_s"], reach=reach, note=said.strip())
    if memory is not None:
        yield Row(what=f"{scale} generator, memory", unit="MB", ours=told["memory_mb"], reach=memory)
    if scale == "baseline":
        same = all(told[name] == n * (1 if name == "makespan_ms" else 5) for name, n in PER_COHORT.items())
        yield Row(what=f"{scale}: the real numbers", unit="of 1", ours=float(same), reach=1, more=True)


def line(pending: int) -> Engine:
    """One queue of four places, all held, and so many behind: 81 forms, as people's jobs are, not one."""
    engine = Engine(policy({"queues": {"q": {"owns": {"cpu": 4}}}}))
    for n in range(pending + 4):
        raw = {"job": f"w{n:05}", "queue": "q", "cpu": 1, "priority": n % 81}
        engine.add(workload(raw, at=Instant(n), priorities={}))
    while engine.has_heads(Instant(0)) and engine.cycle(Instant(0)).admits:
        pass
    return engine


def busy(pending: int) -> float:
    """CPU seconds of so many coming in and the first few hundred starting, one as another ends."""
    began = time.process_time()
    engine = line(pending)
    for n in range(ADMISSIONS):
        engine.remove(min((r.workload.key for r in engine.reservations()), default=WorkloadKey("")))
        while engine.has_heads(Instant(n)) and engine.cycle(Instant(n)).admits:
            pass
    return time.process_time() - began


def quiet(times: int) -> float:
    """Milliseconds of CPU of a cycle that has nothing new to look at."""
    engine = line(10_000)
    spent = []
    for n in range(times):
        began = time.process_time()
        engine.cycle(Instant(n))
        spent.append((time.process_time() - began) * 1000)
    return median(spent)


def _run(*words: str) -> str:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True).stdout
