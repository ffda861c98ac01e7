"""Retry: the same work again as a new job, linked to the one it replaces, with its checkpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tenure.domain.errors import Conflict
from tenure.domain.job import ArraySpec
from tenure.domain.lifecycle import JobState, Outcome

from ..caller import Caller
from ..lookup import owned, rows_of
from ..views.jobs import job_json
from .submit import submit_specs

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["retry"]


def retry(platform: Platform, id: str, *, caller: Caller, only_failed: bool = False) -> dict[str, Any]:
    """Raises Conflict for a job that has not ended, or where `only_failed` leaves nothing."""
    rows, _ = rows_of(platform.ledger, id)
    owned(rows, caller)
    running = [row.id for row in rows if row.state is not JobState.ENDED]
    if running:
        raise Conflict(f"job {running[0]} has not ended; cancel it first, or wait", code="JobNotEnded")
    if only_failed:
        rows = [row for row in rows if row.outcome is not Outcome.COMPLETED]
        if not rows:
            raise Conflict(f"nothing of job {id} failed; there is nothing to retry", code="NothingFailed")
    spec = replace(platform.specs.of(rows[0]), suspended=False, after=(), begin_at=None)
    # A task keeps its index, as a job of its own: its checkpoints and its history are its own too.
    specs = [
        replace(spec, array=ArraySpec(indices=(row.array_index,)) if row.array_index is not None else None)
        for row in rows
    ]
    groups = submit_specs(platform, specs, env_digest=rows[0].env_digest, retry_of=[row.id for row in rows])
    jobs = [job_json(group[0], spec) for group, spec in zip(groups, specs, strict=True)]
    return jobs[0] if len(jobs) == 1 else {"jobs": jobs}
