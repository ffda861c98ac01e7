"""Models: their states, waking and sleeping by hand, advice; and the gateway's own line to the platform."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tenure.control import verbs, views

from .context import Asking, Body, Home, Reply, problems
from .jobs import takes
from .wire.models import Model, ModelAdvice, ModelsSeen, Report, Sleep, Wake

__all__ = ["router"]

router = APIRouter(tags=["models"])


@router.get("/models", operation_id="models", summary="Models and their states", responses={200: {"model": list[Model]}, **problems()}, response_model=None)  # fmt: skip
def models(platform: Home) -> Response:
    return Reply(views.models(platform))


@router.get("/models:watch", operation_id="watch_models", summary="The models, once anything about them is new", responses={200: {"model": ModelsSeen}, **problems(422)}, response_model=None)  # fmt: skip
async def watch(
    platform: Home,
    after: Annotated[int, Query(ge=0, description="The version that the caller has seen.")] = 0,
    timeout: Annotated[float, Query(ge=0, le=60)] = 20.0,
) -> Response:
    """A long poll: answers at once where the caller is behind."""
    loop, rung = asyncio.get_running_loop(), asyncio.Event()

    def ring() -> None:
        with suppress(RuntimeError):  # the loop has closed
            loop.call_soon_threadsafe(rung.set)

    leave = platform.models.subscribe(ring)
    try:
        if platform.models.version == after and not platform.models.closing:
            with suppress(TimeoutError):
                await asyncio.wait_for(rung.wait(), timeout)
    finally:
        leave()
    return Reply(await run_in_threadpool(_seen, platform))


def _seen(platform: Home) -> dict[str, Any]:
    return {"version": platform.models.version, "models": views.models(platform)}


@router.post("/models:report", status_code=204, operation_id="report_inference", summary="What the gateway saw", openapi_extra=takes(Report), responses={204: {"description": "Taken"}, **problems(400, 403, 422)}, response_model=None)  # fmt: skip
def report(platform: Home, caller: Asking, body: Body) -> Response:
    Report.model_validate(body)
    verbs.report_inference(platform, body, caller=caller)
    return Response(status_code=204)


@router.get("/models/{name}/advice", operation_id="model_advice", summary="How long a model should stay up, by the requests that came", responses={200: {"model": ModelAdvice}, **problems(404, 422)}, response_model=None)  # fmt: skip
def advice(
    platform: Home,
    name: str,
    days: Annotated[float, Query(gt=0, le=366)] = 7.0,
    second_is_worth: Annotated[float, Query(ge=0, le=1e9, description="Share-seconds that a second of a caller's waiting is worth.")] = 60.0,
    windows_s: Annotated[list[float], Query(max_length=50, description="Idle windows to try, in seconds.")] = [],  # noqa: B006, fastapi copies it
) -> Response:  # fmt: skip
    return Reply(views.model_advice(platform, name, days=days, second_is_worth=second_is_worth, windows_s=windows_s))


@router.post("/models/{name}:wake", operation_id="wake", summary="Ask for a model", openapi_extra=takes(Wake), responses={200: {"model": Model}, **problems(400, 403, 404, 422, 503)}, response_model=None)  # fmt: skip
def wake(platform: Home, caller: Asking, name: str, body: Body) -> Response:
    asked = Wake.model_validate(body)
    return Reply(verbs.wake(platform, name, caller=caller, cause=asked.cause, by=asked.by, insist=asked.insist))


@router.post("/models/{name}:sleep", operation_id="sleep", summary="Put a model to sleep", openapi_extra=takes(Sleep), responses={200: {"model": Model}, **problems(400, 403, 404, 422)}, response_model=None)  # fmt: skip
def sleep(platform: Home, caller: Asking, name: str, body: Body) -> Response:
    asked = Sleep.model_validate(body)
    return Reply(verbs.sleep(platform, name, caller=caller, cause=asked.cause, by=asked.by))
