"""Windows: claims of whole cards."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from tenure.control import verbs, views

from .context import Asking, Body, Home, Reply, problems
from .jobs import takes
from .wire.windows import ClaimWindow, RenewWindow, Window

__all__ = ["router"]

router = APIRouter(tags=["windows"])


@router.get("/windows", operation_id="windows", summary="Who has claimed which card, and who is next", responses={200: {"model": list[Window]}, **problems(422)}, response_model=None)  # fmt: skip
def windows(
    platform: Home,
    caller: Asking,
    all: Annotated[bool, Query(description="Ended ones too, newest first.")] = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    shown = views.windows(platform, all=all, limit=limit)
    return Reply([window | {"mine": window["owner"] == caller.user} for window in shown])


@router.post("/windows", status_code=201, operation_id="claim_window", summary="Claim a whole card for a time", openapi_extra=takes(ClaimWindow), responses={201: {"model": Window}, **problems(400, 404, 409, 422)}, response_model=None)  # fmt: skip
def claim(platform: Home, caller: Asking, body: Body) -> Response:
    asked = ClaimWindow.model_validate(body)
    window = verbs.claim_window(
        platform,
        caller=caller,
        length=asked.length,
        card=asked.card,
        begin=asked.begin,
        including_resident=asked.including_resident,
        wait=asked.wait,
        lease_s=asked.lease_s,
    )
    return Reply(window, status_code=201, headers={"Location": f"/api/v1/windows/{window['id']}"})


@router.get("/windows/{id:name}", operation_id="window", summary="A window", responses={200: {"model": Window}, **problems(404)}, response_model=None)  # fmt: skip
def window(platform: Home, id: str) -> Response:
    return Reply(views.window(platform, id))


@router.post("/windows/{id:name}:release", operation_id="release_window", summary="Let go of the card", responses={200: {"model": Window}, **problems(403, 404, 409)}, response_model=None)  # fmt: skip
def release(platform: Home, caller: Asking, id: str) -> Response:
    return Reply(verbs.release_window(platform, id, caller=caller))


@router.post("/windows/{id:name}:renew", operation_id="renew_window", summary="Say that its owner is still there", openapi_extra=takes(RenewWindow), responses={200: {"model": Window}, **problems(400, 403, 404, 422)}, response_model=None)  # fmt: skip
def renew(platform: Home, caller: Asking, id: str, body: Body) -> Response:
    return Reply(verbs.renew_window(platform, id, caller=caller, keep=RenewWindow.model_validate(body).keep))
