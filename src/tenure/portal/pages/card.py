"""The card: its shares over time, its memory, who holds it, who waits and why, and what happened last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tenure.control import views
from tenure.domain.events import EventKind
from tenure.portal.api.context import Home

from .look import Look
from .site import page
from .timeline import Block, bands, lanes, ticks

__all__ = ["router"]

router = APIRouter()
RANGES = ((0.25, "15 min"), (1.0, "1 h"), (6.0, "6 h"), (24.0, "24 h"))
SHORTEST = 60.0  # seconds: a young platform's first minutes fill the picture
LATEST = 15
ROWS = 100
# what a person would tell another; the steps between are in each job's own diary
_TOLD = frozenset(EventKind) - {
    EventKind.ATTEMPT_CREATED, EventKind.ATTEMPT_STARTED, EventKind.ATTEMPT_STOPPING, EventKind.ATTEMPT_ENDED,
    EventKind.JOB_PENDING, EventKind.JOB_ADMITTED, EventKind.JOB_REQUEUED,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of the memory bar, as a fraction of the card."""

    id: str
    left: float
    width: float
    says: str


@router.get("/", response_model=None)
def card(request: Request, platform: Home, hours: Annotated[float | None, Query(gt=0, le=168)] = None) -> Response:
    look: Look = request.app.state.look
    seen = look.now()
    until = datetime.now(UTC)
    timeline = seen["timeline"] if hours is None or hours <= 1 else views.card_timeline(platform, hours=hours)
    held = seen["bands"] if hours is None or hours <= 1 else views.window_timeline(platform, hours=hours)
    since = until - (timedelta(hours=hours) if hours else _fitting([*timeline, *held], until=until))
    holders = {holder["id"] for item in seen["cards"] for holder in item["holders"]}
    return page(
        request,
        "card.html",
        cards=[_drawn(item, timeline, held, since=since, until=until) for item in seen["cards"]],
        claims=[window for item in seen["cards"] for window in item["windows"]],
        ticks=ticks(since, until),
        since=since.strftime("%H:%M:%S"),
        hours=hours,
        ranges=RANGES,
        house=seen["house"],
        queues=[{**queue, "jobs": queue["jobs"][:ROWS]} for queue in seen["queues"]],
        waiting=sum(queue["pending"] for queue in seen["queues"]),
        latest=[event for event in reversed(seen["latest"]) if event["kind"] in _TOLD][:LATEST],
        cpu_only=[job for job in seen["active"] if job["id"] not in holders],  # they would be invisible otherwise
    )


def _fitting(timeline: Sequence[Mapping[str, Any]], *, until: datetime) -> timedelta:
    """From a little before the first holding of the last hour, so that a short history is not a sliver."""
    if not timeline:
        return timedelta(hours=1)
    first = min(datetime.fromisoformat(holding["from"]) for holding in timeline)
    return timedelta(seconds=min(3600.0, max(SHORTEST, (until - first).total_seconds() * 1.05)))


def _drawn(
    card: Mapping[str, Any],
    timeline: Sequence[Mapping[str, Any]],
    held: Sequence[Mapping[str, Any]],
    *,
    since: datetime,
    until: datetime,
) -> dict[str, Any]:
    mine = [holding for holding in timeline if holding["card"] == card["id"]]
    blocks: list[Block] = lanes(mine, shares=int(card["shares"]), since=since, until=until)
    taken = [holding for holding in mine if holding.get("ended_by") and holding["to"]]
    measured = card["memory_measured"]
    return {
        **card,
        "blocks": blocks,
        "bands": bands([window for window in held if window["card"] == card["id"]], since=since, until=until),
        "taken": taken[::-1][:5],
        "pieces": _pieces(card),
        "measured_width": None if measured is None else min(1.0, measured / max(card["memory"], 1)),
    }


def _pieces(card: Mapping[str, Any]) -> list[Piece]:
    total, at, pieces = max(int(card["memory"]), 1), 0.0, []
    for holder in card["holders"]:
        width = holder["memory_declared"] / total
        pieces.append(Piece(id=holder["id"], left=at, width=width, says=f"{holder['id']} {holder['name']}"))
        at += width
    return pieces
