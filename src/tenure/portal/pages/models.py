"""Models: what is up, what each waits for, its last wake step by step, and when it sleeps."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tenure.control import views
from tenure.portal.api.context import Home

from .site import page

__all__ = ["router", "steps_of"]

router = APIRouter()
_STEPS = (
    ("queue", "asked_at", "admitted_at"),
    ("start", "admitted_at", "started_at"),
    ("listen", "started_at", "listening_at"),
    ("load", "listening_at", "ready_at"),
    ("first token", "ready_at", "first_token_at"),
)


def steps_of(wake: dict[str, Any]) -> list[dict[str, str]]:
    """The parts of a wake that are over, each with its begin and end."""
    return [
        {"name": name, "begin": wake[begin], "end": wake[end]}
        for name, begin, end in _STEPS
        if wake.get(begin) and wake.get(end)
    ]


@router.get("/models", response_model=None)
def models(request: Request, platform: Home) -> Response:
    rows = [row | {"steps": steps_of(row["last_wake"])} for row in views.models(platform)]
    return page(request, "models.html", models=rows)
