"""Queues: quota, use and who waits, in order."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from tenure.control import views

from .context import Home, Reply, problems
from .wire.cards import Queue

__all__ = ["router"]

router = APIRouter(tags=["queues"])


@router.get("/queues", operation_id="queues", summary="Cluster queues with their use and who waits", responses={200: {"model": list[Queue]}, **problems()}, response_model=None)  # fmt: skip
def queues(platform: Home) -> Response:
    return Reply(views.queues(platform))
