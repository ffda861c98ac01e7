"""The daemon itself: its state, its end, and a browser's way in."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tenure.control import verbs, views
from tenure.control.caller import operators_only
from tenure.portal.auth import Sessions
from tenure.portal.tokens import OPERATOR

from .context import Asking, Body, Home, Reply, problems
from .jobs import takes
from .wire.policy import StopDaemon

__all__ = ["router"]

router = APIRouter(tags=["daemon"])


@router.get("/status", operation_id="status", summary="The doctor's view", responses={200: {"model": dict[str, Any]}, **problems()}, response_model=None)  # fmt: skip
def status(platform: Home) -> Response:
    return Reply(views.status(platform))


@router.post("/daemon:stop", status_code=202, operation_id="stop_daemon", summary="Stop the daemon", openapi_extra=takes(StopDaemon), responses={202: {"model": dict[str, Any]}, **problems(400, 403, 422)}, response_model=None)  # fmt: skip
def stop(platform: Home, caller: Asking, body: Body) -> Response:
    asked = StopDaemon.model_validate(body)
    verbs.stop_daemon(platform, caller=caller, keep_jobs=asked.keep_jobs)
    return Reply({"stopping": True, "keep_jobs": asked.keep_jobs}, status_code=202)


@router.post("/daemon:login", status_code=201, operation_id="login", summary="An address that logs one browser in, once", responses={201: {"model": dict[str, str]}, **problems(403)}, response_model=None)  # fmt: skip
def login(request: Request, caller: Asking) -> Response:
    operators_only(caller, "open the pages by an address of this kind")
    sessions: Sessions = request.app.state.sessions
    return Reply({"url": request.app.state.login_url(sessions.issue_code(OPERATOR))}, status_code=201)
