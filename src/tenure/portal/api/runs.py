"""Runs: the records that attempts wrote of themselves, and what two of them differ in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from tenure.control import views
from tenure.portal.series import read_series

from .context import Home, Reply, problems
from .wire.runs import RunPage, RunRecord, Series

__all__ = ["router"]

router = APIRouter(tags=["runs"])


@router.get("/runs", operation_id="list_runs", summary="List runs", responses={200: {"model": RunPage}, **problems(422)}, response_model=None)  # fmt: skip
def list_runs(
    platform: Home,
    job: str | None = None,
    project: str | None = None,
    outcome: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    cursor: str | None = None,
) -> Response:
    return Reply(views.runs(platform, job=job, project=project, outcome=outcome, limit=limit, cursor=cursor))


@router.get("/runs/{id}", operation_id="run", summary="A run's record", responses={200: {"model": RunRecord}, **problems(404)}, response_model=None)  # fmt: skip
def run(platform: Home, id: str) -> Response:
    return Reply(views.run(platform, id))


@router.get("/runs/{id}/metrics", operation_id="run_metrics", summary="What a run measured, as series", responses={200: {"model": dict[str, Series]}, **problems(404)}, response_model=None)  # fmt: skip
def metrics(platform: Home, id: str) -> Response:
    return Reply(read_series(Path(views.run(platform, id)["run_dir"]) / "metrics.jsonl"))


@router.get("/runs/{id}/diff/{other}", operation_id="diff", summary="What two runs differ in", responses={200: {"model": dict[str, Any]}, **problems(404)}, response_model=None)  # fmt: skip
def diff(platform: Home, id: str, other: str) -> Response:
    return Reply(views.diff(platform, id, other))
