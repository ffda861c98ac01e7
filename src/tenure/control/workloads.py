"""Between the job that people know and the workload that the engine knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tenure.domain.amounts import CPU, GPU, GPU_MEMORY, MEMORY
from tenure.domain.attempt import Process
from tenure.domain.ids import CardId, Instant, JobId, WorkloadKey
from tenure.domain.job import JobSpec
from tenure.domain.workload import Admission, Card, Placement, PodSet, PodSetAssignment, Workload

__all__ = [
    "admission_from_json",
    "admission_to_json",
    "pod_requests",
    "processes_of",
    "with_count",
    "workload",
]

MAIN = "main"


def pod_requests(spec: JobSpec, cards: Sequence[Card]) -> Mapping[str, int]:
    """What one process asks for.  A whole card asks for as many shares as the largest card has."""
    shares = max((card.shares for card in cards), default=1) if spec.whole else spec.shares
    amounts = {GPU: shares, GPU_MEMORY: spec.gpu_memory, CPU: spec.cpus, MEMORY: spec.memory, **spec.requests}
    return {name: amount for name, amount in amounts.items() if amount}


def workload(job: JobId, spec: JobSpec, *, priority: int, created_at: Instant, cards: Sequence[Card]) -> Workload:
    """The workload of a job.  Its id is also its uid, so that Kueue's messages name a job that people can look up."""
    pods = PodSet(
        name=MAIN,
        count=spec.processes,
        min_count=spec.min_processes,
        requests=pod_requests(spec, cards),
        node_selector=spec.node_selector,
        affinity_terms=spec.affinity_terms,
        tolerations=spec.tolerations,
    )
    return Workload(
        key=WorkloadKey(job),
        uid=job,
        namespace=spec.namespace,
        queue=spec.queue or "default",
        pod_sets=(pods,),
        created_at=created_at,
        priority=priority,
        whole_card=spec.whole,
        time_limit_us=int(spec.time_limit_s * 1_000_000) if spec.time_limit_s else None,
    )


def processes_of(admission: Admission, spec: JobSpec) -> tuple[Process, ...]:
    """The processes of an attempt, each with the card it was placed on."""
    count = admission.assignments[0].count if admission.assignments else spec.processes
    card_of = {rank: place.card for place in admission.placements for rank in place.ranks}
    return tuple(Process(rank=rank, cards=(str(card_of[rank]),) if rank in card_of else ()) for rank in range(count))


def with_count(admission: Admission, count: int) -> Admission:
    """The admission of a gang that gave up the processes with rank >= `count`."""
    part = admission.assignments[0]
    usage = {name: amount // part.count * count for name, amount in part.usage.items()}
    places = []
    for place in admission.placements:
        ranks = tuple(rank for rank in place.ranks if rank < count)
        if ranks:
            each = len(place.ranks)
            shares, memory = place.shares // each * len(ranks), place.memory // each * len(ranks)
            places.append(replace(place, ranks=ranks, shares=shares, memory=memory))
    return replace(admission, assignments=(replace(part, count=count, usage=usage),), placements=tuple(places))


def admission_to_json(admission: Admission) -> dict[str, Any]:
    return {
        "cluster_queue": admission.cluster_queue,
        "assignments": [
            {"name": a.name, "flavors": dict(a.flavors), "usage": dict(a.usage), "count": a.count}
            for a in admission.assignments
        ],
        "placements": [
            {"card": p.card, "pod_set": p.pod_set, "ranks": list(p.ranks), "shares": p.shares, "memory": p.memory}
            for p in admission.placements
        ],
    }


def admission_from_json(data: Mapping[str, Any]) -> Admission:
    return Admission(
        cluster_queue=data["cluster_queue"],
        assignments=tuple(
            PodSetAssignment(name=a["name"], flavors=a["flavors"], usage=a["usage"], count=a["count"])
            for a in data["assignments"]
        ),
        placements=tuple(
            Placement(
                card=CardId(p["card"]),
                pod_set=p["pod_set"],
                ranks=tuple(p["ranks"]),
                shares=p["shares"],
                memory=p["memory"],
            )
            for p in data["placements"]
        ),
    )
