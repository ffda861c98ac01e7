"""Policy: what is in force, and whether files would be taken."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from tenure.control import verbs, views

from .context import Asking, Body, Home, Reply, problems
from .jobs import takes
from .wire.policy import Checked, CheckPolicy, PolicyView, Tried, TryPolicy

__all__ = ["router"]

router = APIRouter(tags=["policy"])


@router.get("/policy", operation_id="policy", summary="The policy in force", responses={200: {"model": PolicyView}, **problems()}, response_model=None)  # fmt: skip
def policy(platform: Home) -> Response:
    return Reply(views.policy(platform))


@router.post("/policy:check", operation_id="check_policy", summary="Would these files be taken", openapi_extra=takes(CheckPolicy, required=True), responses={200: {"model": Checked}, **problems(400, 422)}, response_model=None)  # fmt: skip
def check(body: Body) -> Response:
    asked = CheckPolicy.model_validate(body)
    return Reply(views.check_policy([[file.name, file.text] for file in asked.files]))


@router.post("/policy:try", operation_id="try_policy", summary="What these files would have done with the last days", openapi_extra=takes(TryPolicy, required=True), responses={200: {"model": Tried}, **problems(400, 422, 503)}, response_model=None)  # fmt: skip
def attempt(platform: Home, body: Body) -> Response:
    asked = TryPolicy.model_validate(body)
    files = [[file.name, file.text] for file in asked.files]
    return Reply(views.try_policy(platform, files, since_s=asked.since_s))


@router.post("/policy:reload", operation_id="reload_policy", summary="Read the policy directory again", responses={200: {"model": Checked}, **problems(403, 422)}, response_model=None)  # fmt: skip
def reload(platform: Home, caller: Asking) -> Response:
    return Reply(verbs.reload_policy(platform, caller=caller))
