"""Cards: shares, memory and holders, now and over the last hours."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from tenure.control import views

from .context import Home, Reply, problems
from .wire import Card, Holding

__all__ = ["router"]

router = APIRouter(tags=["cards"])


@router.get("/cards", operation_id="cards", summary="Cards and who holds them", responses={200: {"model": list[Card]}, **problems()}, response_model=None)  # fmt: skip
def cards(platform: Home) -> Response:
    return Reply(views.cards(platform))


@router.get("/cards/timeline", operation_id="card_timeline", summary="Who held which card, when, and who took it", responses={200: {"model": list[Holding]}, **problems(422)}, response_model=None)  # fmt: skip
def timeline(platform: Home, hours: Annotated[float, Query(gt=0, le=168)] = 1.0) -> Response:
    return Reply(views.card_timeline(platform, hours=hours))
