"""Windows: who has which card to themselves, who is next, and those there were."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from tenure.control import views
from tenure.portal.api.context import Home

from .site import page

__all__ = ["router"]

router = APIRouter()


@router.get("/windows", response_model=None)
def windows(request: Request, platform: Home) -> Response:
    """Those that have not ended in the order of their turns, then the others, newest first."""
    live = views.windows(platform)
    there = {window["id"] for window in live}
    return page(
        request,
        "windows.html",
        windows=[*live, *(window for window in views.windows(platform, all=True) if window["id"] not in there)],
    )
