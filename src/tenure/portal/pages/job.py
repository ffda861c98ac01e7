"""One job: state and why, attempts and their chain, its life as a line, the end of its log, and its record."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

from fastapi import APIRouter, Request
from starlette.responses import Response

from tenure.control import views
from tenure.control.app import Platform
from tenure.domain.errors import TenureError
from tenure.portal.api.context import Home
from tenure.portal.terminal import Tail, tail

from .site import page
from .timeline import segments

__all__ = ["router"]

router = APIRouter()
TASKS = 500


@router.get("/jobs/{id:name}", response_model=None)
def job(
    request: Request,
    platform: Home,
    id: str,
    attempt: int | None = None,
    stream: Literal["stdout", "stderr"] = "stdout",
    task: int | None = None,
) -> Response:
    shown = views.show(platform, id)
    if "tasks" in shown:
        return page(
            request, "array.html", job=shown, tasks=shown["tasks"][:TASKS], more=max(0, len(shown["tasks"]) - TASKS)
        )
    number = attempt or (shown["attempts"][-1]["number"] if shown["attempts"] else None)
    events = views.events(platform, job=id, limit=1000)
    run = _record(platform, next((a["run_id"] for a in shown["attempts"] if a["number"] == number), None))
    return page(
        request,
        "job.html",
        job=shown,
        why=_why(platform, id),
        attempt=number,
        stream=stream,
        task=task,
        log=_log(platform, id, stream=stream, attempt=number, task=task),
        run=run,
        changed=[
            e["message"] for e in events if e["kind"] == "CodeChanged" and e["run_id"] == (run or {}).get("run_id")
        ],
        life=segments(events, until=datetime.now(UTC)),
        events=events[::-1][:60],
        processes=shown.get("processes") or 1,
    )


def _why(platform: Platform, id: str) -> dict[str, Any] | None:
    """The explanation, or none for a job that left its queue in the meantime."""
    with suppress(TenureError):
        return views.why(platform, id)
    return None


def _log(platform: Platform, id: str, *, stream: str, attempt: int | None, task: int | None) -> Tail:
    with suppress(TenureError):
        return tail(views.log(platform, id, stream=stream, attempt=attempt, task=task).path)
    return Tail(lines=(), skipped=0, size=0)


def _record(platform: Platform, run_id: str | None) -> dict[str, Any] | None:
    if run_id is not None:
        with suppress(TenureError):
            return views.run(platform, run_id)
    return None
