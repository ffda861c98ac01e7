"""The diary: a page of it as JSON, or live as Server-Sent Events that resume by `Last-Event-ID`."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tenure.control import views
from tenure.domain.errors import InvalidRequest
from tenure.portal.stream import EventStream

from .context import Home, Live, Reply, problems
from .wire.runs import Event

__all__ = ["router"]

router = APIRouter(tags=["events"])
_ID = re.compile(r"\d{1,18}")


class _Streamed(Response):
    """A stream in the place where the framework expects a response."""

    def __init__(self, stream: EventStream) -> None:
        super().__init__()
        self.stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.stream(scope, receive, send)


@router.get(
    "/events",
    operation_id="events",
    summary="The diary",
    description=(
        "Events after an id, oldest first.  With `Accept: text/event-stream` or `watch=1` the answer stays open and goes on with what happens; "
        "`Last-Event-ID` wins over `after`.  Without either, a stream begins with what happens next."
    ),
    responses={
        200: {
            "model": list[Event],
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string"},
                    "example": "id: 41\nevent: JobStarted\ndata: {…}\n\n",
                }
            },
        },
        **problems(422),
    },
    response_model=None,
)
async def events(
    request: Request,
    platform: Home,
    news: Live,
    after: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None,
    job: Annotated[str | None, Query(description="Of this job, or of an array's tasks.")] = None,
    limit: Annotated[int, Query(ge=1, le=5000)] = 500,
    newest: Annotated[
        bool, Query(description="The last `limit` of them instead of the first; not of a stream.")
    ] = False,
    watch: bool = False,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    if not watch and "text/event-stream" not in request.headers.get("accept", ""):
        found = await run_in_threadpool(views.events, platform, after=after or 0, job=job, limit=limit, newest=newest)
        return Reply(found)
    if last_event_id:
        if not _ID.fullmatch(last_event_id):
            raise InvalidRequest(
                f"Last-Event-ID {last_event_id!r} is not an event's id, which is a number", field="Last-Event-ID"
            )
        after = int(last_event_id)
    return _Streamed(EventStream(news, after=platform.news.cursor if after is None else after, job=job))
