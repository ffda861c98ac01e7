"""Note: a line in a job's diary, from the job itself or from whoever looks after it.  Nothing else changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.domain.errors import InvalidRequest
from tenure.domain.events import Event, EventKind

from ..caller import Caller
from ..lookup import owned, rows_of
from ..views.jobs import array_json, job_json

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["note"]

LONGEST = 1000


def note(platform: Platform, id: str, *, caller: Caller, message: str) -> dict[str, Any]:
    """Raises InvalidRequest for an empty message or one of more than a thousand characters."""
    text = message.strip()
    if not 1 <= len(text) <= LONGEST:
        raise InvalidRequest(f"a note has 1 to {LONGEST} characters", field="message")
    rows, is_array = rows_of(platform.ledger, id)
    owned(rows, caller)
    with platform.ledger.transaction(durable=False) as tx:
        for row in rows:
            at = platform.clock.now()
            tx.event(Event(kind=EventKind.JOB_NOTED, at=at, job_id=row.id, message=text, data={"by": caller.user}))
    return array_json(rows) if is_array else job_json(rows[0], platform.specs.of(rows[0]))
