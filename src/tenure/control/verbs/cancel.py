"""Cancel: the mark is written first, durably; only then is anything asked to stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenure.domain.attempt import Stop, StopKind
from tenure.domain.errors import Conflict, InvalidRequest
from tenure.domain.events import EventKind
from tenure.domain.ids import Instant
from tenure.domain.lifecycle import JobEvent, JobState, Outcome
from tenure.ledger import Change, JobRow

from ..caller import Caller
from ..lookup import owned, rows_of
from ..views.jobs import array_json, job_json

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["cancel"]

SIGNALS = ("TERM", "INT", "KILL", "HUP", "QUIT", "USR1", "USR2")


def cancel(
    platform: Platform,
    id: str,
    *,
    caller: Caller,
    reason: str = "",
    signal: str | None = None,
    grace_s: float | None = None,
) -> dict[str, Any]:
    """End a job, or every task of an array.

    Asking twice is asking once.  A job that has ended otherwise is a Conflict: it says how it ended.
    """
    name = (signal or "TERM").upper().removeprefix("SIG")
    if name not in SIGNALS:
        raise InvalidRequest(
            f"{signal!r} is not a signal to stop with; use one of {', '.join(SIGNALS)}", field="signal"
        )
    if grace_s is not None and not 0 <= grace_s <= 86_400:
        raise InvalidRequest(f"a grace of {grace_s} s is not between 0 and a day", field="grace_s")
    rows, is_array = rows_of(platform.ledger, id)
    owned(rows, caller)
    if not is_array and rows[0].state is JobState.ENDED and rows[0].outcome is not Outcome.CANCELLED:
        raise Conflict(f"job {id} has already ended ({rows[0].outcome}); there is nothing to cancel", code="JobEnded")
    message = f"cancelled by {caller.user}" + (f": {reason}" if reason else "")
    done = _cancel_all(platform, rows, message=message)
    for row in done:
        if row.state in (JobState.CANCELLING, JobState.ENDED):
            grace = grace_s if grace_s is not None else platform.specs.of(row).grace_s
            platform.conductor.changed(
                row.id,
                Stop(
                    kind=StopKind.CANCEL,
                    reason="Cancelled",
                    message=message,
                    by=caller.user,
                    grace_s=grace,
                    signal=name,
                ),
            )
    return array_json(done) if is_array else job_json(done[0], platform.specs.of(done[0]))


def _cancel_all(platform: Platform, rows: Sequence[JobRow], *, message: str) -> list[JobRow]:
    """All of them in one transaction.  The loop may move a job between our look and our write: then look again."""
    latest = {row.id: row for row in rows}
    while open_ := [row for row in latest.values() if row.state not in (JobState.ENDED, JobState.CANCELLING)]:
        at = platform.clock.now()
        with platform.ledger.transaction(durable=True) as tx:
            moved = tx.move_many([_change(row, message=message, at=at) for row in open_])
        for row, answer in zip(open_, moved, strict=True):
            latest[row.id] = answer if isinstance(answer, JobRow) else platform.ledger.job(row.id)
    return [latest[row.id] for row in rows]


def _change(row: JobRow, *, message: str, at: Instant) -> Change:
    queued = row.state is JobState.QUEUED
    fields: dict[str, object] = {"reason": "Cancelled", "message": message}
    if queued:
        fields |= {"outcome": Outcome.CANCELLED, "ended_at": at}
    return Change(
        job_id=row.id,
        event=JobEvent.CANCEL,
        kind=EventKind.JOB_ENDED if queued else EventKind.JOB_CANCEL_REQUESTED,
        at=at,
        expect_state=row.state,
        expect_revision=row.revision,
        message=message,
        fields=fields,
    )
