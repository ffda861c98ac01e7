"""Capacity: who waited, who held the cards, who used them, and what nobody could use."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from tenure.control import views

from .context import Home, Reply, problems

__all__ = ["router"]

router = APIRouter(tags=["capacity"])


@router.get("/capacity", operation_id="capacity", summary="The capacity report of the last days", responses={200: {"model": dict[str, Any]}, **problems(422)}, response_model=None)  # fmt: skip
def capacity(platform: Home, since_s: Annotated[float, Query(gt=0, le=366 * 86_400)] = 7 * 86_400) -> Response:
    return Reply(views.capacity(platform, since_s=since_s))
