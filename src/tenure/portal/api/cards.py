"""Cards: shares, memory and holders, now and over the last hours."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from tenure.control import verbs, views

from .context import Asking, Body, Home, Reply, problems
from .jobs import takes
from .wire.cards import Card, Drain, Holding

__all__ = ["router"]

router = APIRouter(tags=["cards"])


@router.get("/cards", operation_id="cards", summary="Cards and who holds them", responses={200: {"model": list[Card]}, **problems()}, response_model=None)  # fmt: skip
def cards(platform: Home) -> Response:
    return Reply(views.cards(platform))


@router.get("/cards/timeline", operation_id="card_timeline", summary="Who held which card, when, and who took it", responses={200: {"model": list[Holding]}, **problems(422)}, response_model=None)  # fmt: skip
def timeline(platform: Home, hours: Annotated[float, Query(gt=0, le=168)] = 1.0) -> Response:
    return Reply(views.card_timeline(platform, hours=hours))


@router.post("/cards/{id}:drain", operation_id="drain", summary="Take a card out of the pool", openapi_extra=takes(Drain), responses={200: {"model": Card}, **problems(400, 403, 404, 422)}, response_model=None)  # fmt: skip
def drain(platform: Home, caller: Asking, id: str, body: Body) -> Response:
    return Reply(verbs.drain(platform, id, caller=caller, move=Drain.model_validate(body).move))


@router.post("/cards/{id}:undrain", operation_id="undrain", summary="Put a card back into the pool", responses={200: {"model": Card}, **problems(403, 404)}, response_model=None)  # fmt: skip
def undrain(platform: Home, caller: Asking, id: str) -> Response:
    return Reply(verbs.undrain(platform, id, caller=caller))
