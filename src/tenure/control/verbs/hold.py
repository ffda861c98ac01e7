"""Hold and release: a queued job is kept from being considered, and let in again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.domain.errors import Conflict, InvalidRequest
from tenure.domain.events import EventKind
from tenure.domain.lifecycle import JobState
from tenure.domain.reasons import PendingReason
from tenure.ledger import JobRow
from tenure.manifests.instants import parse_instant

from ..caller import Caller
from ..lookup import owned, rows_of
from ..views.jobs import array_json, job_json

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["hold", "release"]


def hold(platform: Platform, id: str, *, caller: Caller) -> dict[str, Any]:
    """Keep a queued job out.  Twice is once; a job that is not queued is a Conflict."""
    message = f"held by {caller.user}; `tenure release {id}` lets it be considered"
    return _set(platform, id, caller, held=True, message=message, at=None)


def release(platform: Platform, id: str, *, caller: Caller, at: str | None = None) -> dict[str, Any]:
    """Let a held job in, at once or not before `at` (RFC 3339, HH:MM, now+1hour)."""
    begin = None
    if at is not None:
        try:
            begin = parse_instant(at, platform.clock.now())
        except ValueError as error:
            raise InvalidRequest(f"at: {error}", field="at") from None
    return _set(platform, id, caller, held=False, message=f"released by {caller.user}", at=begin)


def _set(platform: Platform, id: str, caller: Caller, *, held: bool, message: str, at: int | None) -> dict[str, Any]:
    rows, is_array = rows_of(platform.ledger, id)
    owned(rows, caller)
    verb = "hold" if held else "release"
    if not is_array and rows[0].state is not JobState.QUEUED:
        raise Conflict(f"cannot {verb} a job that is {rows[0].state}; only queued jobs are held", code="NotQueued")
    done: list[JobRow] = []
    with platform.ledger.transaction(durable=True) as tx:
        for row in rows:
            now = tx.job(row.id)
            if now.state is JobState.QUEUED and (now.held != held or at is not None):
                reason = PendingReason.SUSPENDED if held else PendingReason.PENDING_EVALUATION
                now = tx.note(
                    row.id,
                    EventKind.JOB_HELD if held else EventKind.JOB_RELEASED,
                    platform.clock.now(),
                    message=message,
                    changes={"held": held, "reason": str(reason), "message": message, "not_before": at},
                    expect_state=JobState.QUEUED,
                )
            done.append(now)
    for row in done:
        platform.conductor.changed(row.id)
    return array_json(done) if is_array else job_json(done[0], platform.specs.of(done[0]))
