"""The list of jobs: filtered and paged by the server, so that fifty thousand of them stay fast."""

from __future__ import annotations

import shlex
from itertools import chain
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tenure.control import views
from tenure.domain.lifecycle import JobState
from tenure.portal.api.context import Home

from .site import page

__all__ = ["router"]

router = APIRouter()
LIMIT = 100


@router.get("/jobs", response_model=None)
def jobs(
    request: Request,
    platform: Home,
    all: bool = False,
    state: str = "",
    project: str = "",
    name: str = "",
    array: str = "",
    cursor: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    chosen = {"state": state, "project": project, "name": name, "array": array}
    given = {key: value for key, value in chosen.items() if value} | ({"all": "1"} if all else {})
    listing = views.jobs(
        platform,
        all=all or state == JobState.ENDED,
        state=state or None,
        project=project or None,
        name=name or None,
        array=array or None,
        limit=LIMIT,
        cursor=cursor or None,
    )
    flags = chain.from_iterable((f"--{key}", word) for key, word in chosen.items() if word)
    return page(
        request,
        "jobs.html",
        command=shlex.join(["tenure", "ps", *(["-a"] if all else []), *flags]),
        jobs=listing["items"],
        following=urlencode(given | {"cursor": listing["next"]}) if listing["next"] else None,
        first=urlencode(given) if cursor else None,
        query=urlencode(given),
        chosen=chosen,
        all=all,
        states=list(JobState),
    )
