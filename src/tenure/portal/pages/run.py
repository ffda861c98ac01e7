"""One run: the record that an attempt wrote of itself, and what it measured."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from tenure.control import views
from tenure.portal.api.context import Home

from .site import page

__all__ = ["router"]

router = APIRouter()


@router.get("/runs/{id}", response_model=None)
def run(request: Request, platform: Home, id: str, against: str = "") -> Response:
    record = views.run(platform, id)
    other = against or record.get("retry_of") or ""
    compared = views.diff(platform, other, id) if against else None
    return page(request, "run.html", run=record, id=id, other=other, compared=compared)
