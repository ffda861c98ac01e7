"""The diary, as streams and pages read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.domain.events import Event

from ..clock import wire

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["event_json", "events"]


def events(platform: Platform, *, after: int = 0, job: str | None = None, limit: int = 500) -> list[dict[str, Any]]:
    """Events past a cursor, oldest first; of one job, where named."""
    return [event_json(event) for event in platform.ledger.events(after=after, job_id=job, limit=limit)]


def event_json(event: Event) -> dict[str, Any]:
    return {
        "id": event.id,
        "at": wire(event.at),
        "kind": str(event.kind),
        "job_id": event.job_id,
        "run_id": event.run_id,
        "message": event.message,
        "changes": dict(event.changes),
        "data": dict(event.data),
    }
