"""Cluster queues: what they own, use, borrow and lend, and who waits, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.domain.ids import JobId, WorkloadKey
from tenure.domain.lifecycle import JobState

from ..clock import wire
from ..live import Live

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["queues"]

LISTED = 500  # of a longer line only the head is listed; the count is whole


def queues(platform: Platform) -> list[dict[str, Any]]:
    """One entry a cluster queue, in the order of the policy."""
    policy = platform.policy.current
    with platform.conductor.lock:
        usage = platform.engine.usage()
        orders = {name: platform.engine.order(name) for name in policy.cluster_queues}
        listed = {
            name: [_waiting(platform, key, place) for place, key in enumerate(order[:LISTED])]
            for name, order in orders.items()
        }
        aside = [
            {**_job(live), "position": None, "reason": live.reason, "message": live.message}
            for live in platform.conductor.live.values()
            if live.state is JobState.QUEUED and not live.in_engine
        ]
    shown = []
    for queue in policy.cluster_queues.values():
        resources = [
            {
                "flavor": part.flavor,
                "resource": part.resource,
                "nominal": part.nominal,
                "used": part.used,
                "borrowed": part.borrowed,
                "lent": part.lent,
                "borrowing_limit": part.borrowing_limit,
            }
            for part in usage
            if part.cluster_queue == queue.name
        ]
        outside = [job for job in aside if _queue_of(platform, job) == queue.name]
        shown.append(
            {
                "name": queue.name,
                "cohort": queue.cohort,
                "strategy": str(queue.queueing_strategy),
                "stop_policy": str(queue.stop_policy),
                "local_queues": [
                    f"{lq.namespace}/{lq.name}" for lq in policy.local_queues.values() if lq.cluster_queue == queue.name
                ],
                "resources": resources,
                "pending": len(orders[queue.name]) + len(outside),
                "jobs": listed[queue.name] + outside[:LISTED],
            }
        )
    return shown


def _waiting(platform: Platform, key: WorkloadKey, place: int) -> dict[str, Any]:
    live = platform.conductor.live.get(JobId(key))
    pend = platform.engine.status(key)
    shown = _job(live) if live is not None else {"id": str(key)}
    return {
        **shown,
        "position": place,
        "reason": str(pend.reason) if pend is not None else live.reason if live else "",
        "message": pend.message if pend is not None else "",
    }


def _job(live: Live) -> dict[str, Any]:
    return {
        "id": live.id,
        "name": live.spec.name,
        "owner": live.spec.owner,
        "project": live.spec.project,
        "priority_class": live.priority_class,
        "priority": live.priority,
        "queue": live.spec.queue,
        "namespace": live.spec.namespace,
        "shares": live.spec.shares * live.spec.processes,
        "gpu_memory": live.spec.gpu_memory * live.spec.processes,
        "submitted_at": wire(live.submitted_at),
    }


def _queue_of(platform: Platform, job: dict[str, Any]) -> str | None:
    queue = platform.policy.current.local_queues.get((job["namespace"], job["queue"] or "default"))
    return queue.cluster_queue if queue is not None else None
