"""Whether it lives, whether it is ready and which version it is: outside `/api/v1`, as probes expect."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

import tenure
from tenure.control import views
from tenure.domain.errors import Unavailable

from .context import Home, Reply, problems

__all__ = ["router"]

router = APIRouter(tags=["health"])


@router.get(
    "/healthz",
    operation_id="healthz",
    summary="It answers",
    response_model=None,
    responses={200: {"content": {"text/plain": {}}}},
)
async def healthz() -> Response:
    return PlainTextResponse("ok\n")


@router.get("/readyz", operation_id="readyz", summary="It can take and start jobs", response_model=None, responses={200: {"model": dict[str, bool]}, **problems(503)})  # fmt: skip
def readyz(platform: Home) -> Response:
    if platform.going_down:
        raise Unavailable("the platform is going down", code="GoingDown")
    state = views.status(platform)  # asks the ledger, too
    if not state["backend"]["ok"]:
        raise Unavailable(f"nothing can be started: {state['backend']['message']}", code="BackendUnavailable")
    return Reply({"ready": True})


@router.get(
    "/version",
    operation_id="version",
    summary="Its version",
    response_model=None,
    responses={200: {"model": dict[str, str]}},
)
async def version() -> Response:
    return Reply({"version": tenure.__version__, "api": "v1"})
