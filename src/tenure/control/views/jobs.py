"""Jobs, as scripts and pages read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenure.domain.errors import InvalidRequest
from tenure.domain.ids import WorkloadKey
from tenure.domain.job import JobSpec
from tenure.domain.lifecycle import HOLDS_QUOTA, JobState
from tenure.domain.reasons import PendingReason
from tenure.ledger import AttemptRow, JobFilter, JobRow
from tenure.manifests.wire import spec_to_json

from ..clock import wire
from ..lookup import rows_of

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["array_json", "counts", "has_ended", "job_json", "jobs", "show"]

ACTIVE = frozenset(JobState) - {JobState.ENDED}
UNSEEN = PendingReason.PENDING_EVALUATION


def job_json(row: JobRow, spec: JobSpec) -> dict[str, Any]:
    """The object that `ps` lists and every verb answers."""
    return {
        "id": row.id,
        "name": row.name,
        "state": str(row.state),
        "reason": row.reason,
        "message": row.message,
        "outcome": str(row.outcome) if row.outcome else None,
        "exit_code": row.exit_code,
        "signal": row.signal,
        "queue": row.queue,
        "cluster_queue": row.cluster_queue,
        "priority_class": row.priority_class,
        "priority": row.priority,
        "project": row.project,
        "namespace": row.namespace,
        "owner": row.owner,
        "shares": spec.shares * spec.processes,
        "whole": spec.whole,
        "gpu_memory": spec.gpu_memory * spec.processes,
        "processes": spec.processes,
        "array_id": row.array_id,
        "array_index": row.array_index,
        "submitted_at": wire(row.submitted_at),
        "admitted_at": wire(row.admitted_at),
        "started_at": wire(row.started_at),
        "ended_at": wire(row.ended_at),
        "attempts": row.attempts,
        "run_id": row.run_id,
        "retry_of": row.retry_of,
        "revision": row.revision,
    }


def array_json(rows: Sequence[JobRow]) -> dict[str, Any]:
    """An array as one thing: its state is the least advanced of its tasks', its outcome the worst."""
    first = rows[0]
    states = Counter(str(row.state) for row in rows)
    outcomes = Counter(str(row.outcome) for row in rows if row.outcome)
    order = ("running", "admitted", "evicting", "cancelling", "queued", "ended")
    worst = ("failed", "interrupted", "cancelled", "completed")
    ended = states["ended"] == len(rows)
    return {
        "id": first.array_id,
        "name": first.name,
        "project": first.project,
        "queue": first.queue,
        "priority_class": first.priority_class,
        "state": next(state for state in order if states[state]),
        "outcome": next((o for o in worst if outcomes[o]), None) if ended else None,
        "submitted_at": wire(first.submitted_at),
        "array": {
            "size": len(rows),
            "limit": first.array_limit,
            "states": dict(states),
            "outcomes": dict(outcomes),
        },
        "tasks": [row.id for row in rows],
    }


def jobs(
    platform: Platform,
    *,
    all: bool = False,
    state: str | None = None,
    project: str | None = None,
    name: str | None = None,
    queue: str | None = None,
    array: str | None = None,
    owner: str | None = None,
    limit: int = 200,
    cursor: str | None = None,
) -> dict[str, Any]:
    """Newest first, a page at a time.  Without `all`, `state` or `array`, only jobs that have not ended."""
    if not 1 <= limit <= 10_000:
        raise InvalidRequest(f"limit {limit} is not between 1 and 10000", field="limit")
    states = None if all or array is not None else ACTIVE
    if state is not None:
        try:
            states = frozenset(JobState(word.strip()) for word in state.split(","))
        except ValueError:
            words = ", ".join(JobState)
            raise InvalidRequest(f"{state!r} is not a state; the states are {words}", field="state") from None
    which = JobFilter(states=states, project=project, name=name, queue=queue, array=array, owner=owner)
    page = platform.ledger.jobs(which, limit=limit, cursor=cursor)
    items = [job_json(row, platform.specs.of(row)) for row in page.items]
    _judge_unseen(platform, items)
    return {"items": items, "next": page.next}


def _judge_unseen(platform: Platform, items: Sequence[dict[str, Any]]) -> None:
    """Deep in a line nobody has looked at a job yet, or only at its equals: then the engine is asked what it would say."""
    unseen = [item for item in items if item["state"] == JobState.QUEUED and item["reason"] == UNSEEN]
    if not unseen:
        return
    with platform.conductor.lock:
        for item in unseen:
            pend = platform.engine.status(WorkloadKey(item["id"]))
            if pend is not None:
                item["reason"], item["message"] = str(pend.reason), pend.message


def has_ended(platform: Platform, id: str) -> bool:
    """Whether a job, or every task of an array, has ended: what a wait asks again and again.  Raises NotFound."""
    row = platform.ledger.find_job(id)
    if row is not None:
        return row.state is JobState.ENDED
    states = {state for state, _ in platform.ledger.counts(array=id)}
    if not states:
        rows_of(platform.ledger, id)
    return states == {JobState.ENDED}


def show(platform: Platform, id: str) -> dict[str, Any]:
    """One job with its spec and its attempts; or an array with its tasks.  Raises NotFound."""
    rows, is_array = rows_of(platform.ledger, id)
    if is_array:
        shown = array_json(rows)
        shown["tasks"] = [
            {
                "id": row.id,
                "state": str(row.state),
                "reason": row.reason,
                "outcome": str(row.outcome) if row.outcome else None,
                "exit_code": row.exit_code,
                "run_id": row.run_id,
            }
            for row in rows
        ]
        shown["spec"] = spec_to_json(platform.specs.of(rows[0]))
        return shown
    row = rows[0]
    spec = platform.specs.of(row)
    shown = job_json(row, spec)
    if row.state is JobState.QUEUED:
        pend, place = platform.standing(WorkloadKey(row.id))
        shown["position"] = place
        if pend is not None:
            shown["reason"], shown["message"] = str(pend.reason), pend.message
    else:
        shown["position"] = None
    shown["spec"] = spec_to_json(spec)
    shown["notes"] = list(spec.notes)
    shown["fingerprint"] = dict(row.fingerprint)
    shown["labels"] = dict(row.labels)
    shown["placement"] = row.reservation if row.state in HOLDS_QUOTA else None
    shown["attempts"] = [_attempt(attempt) for attempt in platform.ledger.attempts(row.id)]
    return shown


def _attempt(row: AttemptRow) -> dict[str, Any]:
    evicted = None
    if row.evicted_at is not None:
        evicted = {
            "reason": row.evicted_reason,
            "message": row.evicted_message,
            "by": row.evicted_by,
            "at": wire(row.evicted_at),
        }
    return {
        "number": row.number,
        "run_id": row.run_id,
        "state": str(row.state),
        "outcome": str(row.outcome) if row.outcome else None,
        "exit_code": row.exit_code,
        "signal": row.signal,
        "reason": row.reason,
        "message": row.message,
        "created_at": wire(row.created_at),
        "started_at": wire(row.started_at),
        "ended_at": wire(row.ended_at),
        "evicted": evicted,
        "retry_of": row.retry_of,
        "failed_rank": row.failed_rank,
        "placement": row.placement,
        "survivors": list(row.survivors),
    }


def counts(platform: Platform) -> dict[str, int]:
    """How many jobs are in each state, and how many ended how (`ended/completed`, …)."""
    found: Counter[str] = Counter()
    for (state, outcome), number in platform.ledger.counts().items():
        found[str(state)] += number
        if outcome is not None:
            found[f"ended/{outcome}"] += number
    return dict(found)
