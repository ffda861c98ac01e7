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

from .site import page
from .timeline import Block, lanes, ticks

__all__ = ["router"]

router = APIRouter()
RANGES = ((0.25, "15 min"), (1.0, "1 h"), (6.0, "6 h"), (24.0, "24 h"))
LATEST = 24
ROWS = 100
# what a person would tell another; the rest is in the job's own diary
_QUIET = frozenset(
    {EventKind.ATTEMPT_CREATED, EventKind.ATTEMPT_STARTED, EventKind.ATTEMPT_ENDED, EventKind.JOB_PENDING}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of the memory bar, as a fraction of the card."""

    id: str
    left: float
    width: float
    says: str


@router.get("/", response_model=None)
def card(request: Request, platform: Home, hours: Annotated[float, Query(gt=0, le=168)] = 1.0) -> Response:
    until = datetime.now(UTC)
    since = until - timedelta(hours=hours)
    timeline = views.card_timeline(platform, hours=hours)
    cards = views.cards(platform)
    queues = views.queues(platform)
    latest = views.events(platform, after=max(0, platform.news.cursor - 6 * LATEST), limit=6 * LATEST)
    return page(
        request,
        "card.html",
        cards=[_drawn(item, timeline, since=since, until=until) for item in cards],
        ticks=ticks(since, until),
        hours=hours,
        ranges=RANGES,
        house=views.status(platform),
        queues=[{**queue, "jobs": queue["jobs"][:ROWS]} for queue in queues],
        waiting=sum(queue["pending"] for queue in queues),
        latest=[event for event in reversed(latest) if event["kind"] not in _QUIET][:LATEST],
        cpu_only=_without_card(platform, cards),
    )


def _drawn(
    card: Mapping[str, Any], timeline: Sequence[Mapping[str, Any]], *, since: datetime, until: datetime
) -> dict[str, Any]:
    mine = [holding for holding in timeline if holding["card"] == card["id"]]
    blocks: list[Block] = lanes(mine, shares=int(card["shares"]), since=since, until=until)
    taken = [holding for holding in mine if holding.get("ended_by") and holding["to"]]
    measured = card["memory_measured"]
    return {
        **card,
        "blocks": blocks,
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


def _without_card(platform: Home, cards: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Jobs that run and hold no card: they would be invisible here otherwise."""
    holders = {holder["id"] for card in cards for holder in card["holders"]}
    active = views.jobs(platform, state="admitted,running,evicting,cancelling", limit=ROWS)["items"]
    return [job for job in active if job["id"] not in holders]
