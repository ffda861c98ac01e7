"""What every endpoint is handed, and how it answers: the platform, the caller, a body read once, plain JSON out."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.responses import Response

from tenure.control.app import Platform
from tenure.control.caller import Caller
from tenure.domain.errors import InvalidRequest
from tenure.portal.auth import caller_of
from tenure.portal.stream import News

__all__ = ["Asking", "Body", "Home", "Live", "Reply", "problems", "read_body"]

MAX_BODY = 32 * 1024 * 1024


class Reply(Response):
    """JSON without a second validation.  Names that are no UTF-8 survive as escapes."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


async def _platform(request: Request) -> Platform:
    platform = request.app.state.platform
    assert isinstance(platform, Platform)
    return platform


async def _news(request: Request) -> News:
    news = request.app.state.news
    assert isinstance(news, News)
    return news


async def _caller(request: Request) -> Caller:
    return caller_of(request)


async def read_body(request: Request) -> dict[str, Any]:
    """The JSON object of the request, `{}` where there is none.  Raises InvalidRequest for anything else."""
    if int(request.headers.get("content-length") or 0) > MAX_BODY:
        raise _too_large()
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY:
            raise _too_large()
        pieces.append(piece)
    if size == 0:
        return {}
    try:
        body = json.loads(b"".join(pieces))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is no JSON: {error}", code="InvalidJSON") from None
    if not isinstance(body, dict):
        raise InvalidRequest(f"the body must be a JSON object, not {type(body).__name__}", code="InvalidJSON")
    return body


def _too_large() -> InvalidRequest:
    return InvalidRequest(f"a body of more than {MAX_BODY >> 20} MiB is not taken", code="TooLarge")


Home = Annotated[Platform, Depends(_platform)]
Live = Annotated[News, Depends(_news)]
Asking = Annotated[Caller, Depends(_caller)]
Body = Annotated[dict[str, Any], Depends(read_body)]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of an endpoint, for the document, which adds their one schema."""
    known = {
        400: "The body is no JSON object",
        401: "No token, or one that is not known",
        403: "Not yours to do",
        404: "It does not exist",
        409: "It does not apply to the state that there is",
        413: "The body is too large",
        422: "The request can never work as it is",
        500: "A bug of tenure's",
        503: "Not now; the same request may work later",
    }
    return {status: {"description": known[status]} for status in (401, *statuses, 500)}
