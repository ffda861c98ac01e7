"""The diary, as streams and pages read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.domain.events import Event, EventKind

from ..clock import wire

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["event_json", "events", "model_events"]

MODELS = frozenset(kind for kind in EventKind if kind.name.startswith("MODEL_"))
LOOKED_AT = 2000  # lines about all models that are looked through for those of one
BACK = 100_000  # lines of the whole diary: an old one is not gone through for a page that asks every two seconds


def events(
    platform: Platform, *, after: int = 0, job: str | None = None, limit: int = 500, newest: bool = False
) -> list[dict[str, Any]]:
    """Events past a cursor, oldest first; of one job, where named.  `newest`: the last `limit` of them, not the first."""
    found = platform.ledger.events(after=after, job_id=job, limit=limit, newest=newest)
    return [event_json(event) for event in (reversed(found) if newest else found)]


def model_events(platform: Platform, name: str, *, limit: int = 50) -> list[dict[str, Any]]:
    """The latest wakes, states and held requests of one model, newest first."""
    after = max(0, platform.news.cursor - BACK)
    lines = platform.ledger.events(after=after, kinds=MODELS, limit=LOOKED_AT, newest=True)
    return [event_json(line) for line in lines if line.data.get("model") == name][:limit]


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
