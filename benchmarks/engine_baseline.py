"""Kueue's own performance generators, replayed in virtual time with instant evictions: decisions only, one core.

`python benchmarks/engine_baseline.py [baseline|large-scale|one-cohort]` prints admissions, evictions, cycles, makespan
and the CPU it took.  The loop is that of the replay of the real scheduler (one cohort of *baseline*: 4,215 admissions,
1,215 evictions, makespan 76.9 s): all events that are due, one cycle, all evictions at once, one millisecond.
"""

from __future__ import annotations

import heapq
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tenure.domain.amounts import CPU
from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.policy import (
    ClusterQueue,
    Flavor,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    Policy,
    Preemption,
    PreemptionPolicy,
    Quota,
    ResourceGroup,
)
from tenure.domain.workload import PodSet, Workload
from tenure.engine import Engine, EngineOptions

_MS = 1000


@dataclass(frozen=True)
class Load:
    """One class of workloads: how many a queue gets, how often, for how long, how important, how large."""

    name: str
    count: int
    every_ms: int
    runtime_ms: int
    priority: int
    cpus: int


BASELINE = (
    Load("small", 350, 100, 200, 50, 1),
    Load("medium", 100, 500, 500, 100, 5),
    Load("large", 50, 1200, 1000, 200, 20),
)
LARGE_SCALE = (
    Load("small", 35, 60, 150, 50, 1),
    Load("medium", 11, 300, 350, 100, 5),
    Load("large", 4, 700, 700, 200, 20),
)
SCALES = {"one-cohort": (1, 6, BASELINE), "baseline": (5, 6, BASELINE), "large-scale": (10, 100, LARGE_SCALE)}


def policy(cohorts: int, queues: int) -> Policy:
    quota = Quota(nominal=20_000, borrowing_limit=100_000)
    group = ResourceGroup(covered_resources=(CPU,), flavors=(FlavorQuotas(flavor="default", resources={CPU: quota}),))
    names = [(f"cohort-{c}", f"cohort-{c}-cq-{q}") for c in range(cohorts) for q in range(queues)]
    preemption = Preemption(
        within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY, reclaim_within_cohort=PreemptionPolicy.ANY
    )
    return Policy(
        flavors={"default": Flavor(name="default")},
        cluster_queues={
            q: ClusterQueue(
                name=q, cohort=c, resource_groups=(group,), namespace_selector=LabelSelector(), preemption=preemption
            )
            for c, q in names
        },
        local_queues={(q, "lq"): LocalQueue(name="lq", namespace=q, cluster_queue=q) for _, q in names},
    )


def arrivals(cohorts: int, queues: int, loads: tuple[Load, ...]) -> Iterator[tuple[int, Workload, Load]]:
    for c in range(cohorts):
        for q in range(queues):
            namespace = f"cohort-{c}-cq-{q}"
            for k, load in enumerate(loads):
                for i in range(1, load.count + 1):
                    at = i * load.every_ms * _MS
                    name = f"{namespace}/{load.name}-{k}-{i}-0"
                    pods = (PodSet(requests={CPU: load.cpus * 1000}),)
                    yield at, Workload(
                        key=WorkloadKey(name), uid=name, namespace=namespace, queue="lq", pod_sets=pods,
                        created_at=Instant(at), priority=load.priority,
                    ), load  # fmt: skip


def run(scale: str) -> Counter[str]:
    cohorts, queues, loads = SCALES[scale]
    engine = Engine(policy(cohorts, queues), options=EngineOptions(shrink_gangs=False))
    events: list[tuple[int, int, str, Workload | WorkloadKey, int]] = []
    runtimes: dict[WorkloadKey, int] = {}
    seq = 0
    for at, w, load in arrivals(cohorts, queues, loads):
        seq += 1
        runtimes[w.key] = load.runtime_ms * _MS
        events.append((at, seq, "create", w, 0))
    heapq.heapify(events)
    attempt: Counter[WorkloadKey] = Counter()
    done: Counter[str] = Counter()
    now, last = 0, 0
    while events or engine.has_heads(Instant(now)):
        while events and events[0][0] <= now:
            _, _, kind, what, n = heapq.heappop(events)
            if isinstance(what, Workload):
                engine.add(what)
            elif kind == "finish" and attempt[what] == n:
                engine.remove(what)
                attempt[what] = -1
                last = now
        if not engine.has_heads(Instant(now)):
            if not events:
                break
            now = events[0][0]
            continue
        plan = engine.cycle(Instant(now))
        done["cycles"] += 1
        for admit in plan.admits:
            done["admissions"] += 1
            attempt[admit.key] += 1
            seq += 1
            heapq.heappush(events, (now + runtimes[admit.key], seq, "finish", admit.key, attempt[admit.key]))
        for preempt in sorted(plan.preempts, key=lambda p: p.victim):
            done["evictions"] += 1
            attempt[preempt.victim] += 1
            engine.released(preempt.victim, at=Instant(now))
        now += _MS
    done["makespan_ms"] = last // _MS
    return done


def main(scale: str) -> None:
    began = time.process_time()
    done = run(scale)
    cpu = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    figures = " ".join(f"{name}={done[name]}" for name in ("admissions", "evictions", "cycles", "makespan_ms"))
    print(f"{scale}: {figures} cpu_s={cpu:.2f} memory_mb={memory}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "baseline")
