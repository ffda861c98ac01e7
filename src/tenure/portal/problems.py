"""Errors on the wire: `application/problem+json` (RFC 9457), one shape for every branch of `domain.errors`.

Also for what the framework refuses by itself: a path that is not there, a method that it does not have, a body that
is no JSON.
"""

from __future__ import annotations

import http
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from tenure.domain.errors import (
    Conflict,
    Forbidden,
    HouseFault,
    IllegalTransition,
    InvalidManifest,
    InvalidRequest,
    LaunchError,
    NotFound,
    TenureError,
    Unavailable,
)

__all__ = ["MEDIA_TYPE", "also_for_people", "answer", "install", "problem", "respond", "status_of"]

MEDIA_TYPE = "application/problem+json"
_BAD_BODY = {"InvalidJSON": 400, "TooLarge": 413}
_STATUS: tuple[tuple[type[TenureError], int], ...] = (
    (NotFound, 404),
    (InvalidRequest, 422),
    (Conflict, 409),
    (Forbidden, 403),
    (Unavailable, 503),
    (LaunchError, 422),
    (HouseFault, 500),
)
Handler = Callable[[Request, Exception], Awaitable[Response]]
_log = logging.getLogger("tenure.portal")


def status_of(error: TenureError) -> int:
    return _BAD_BODY.get(error.code) or next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem(error: TenureError, *, status: int | None = None) -> dict[str, Any]:
    """The body for one error.  `problems` lists every one of a manifest's; `legal` what the state would accept."""
    status = status_of(error) if status is None else status
    body: dict[str, Any] = {
        "type": f"urn:tenure:problem:{error.code}",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": error.message,
        "code": error.code,
    }
    if isinstance(error, InvalidRequest) and error.field is not None:
        body["field"] = error.field
    if isinstance(error, InvalidManifest):
        body["problems"] = [asdict(item) for item in error.problems]
    if isinstance(error, IllegalTransition):
        body |= {"state": str(error.state), "legal": [str(item) for item in error.legal]}
    return body


def respond(error: TenureError, *, status: int | None = None, headers: Mapping[str, str] | None = None) -> Response:
    body = problem(error, status=status)
    extra = dict(headers or {})
    if body["status"] == 503:
        extra.setdefault("Retry-After", "1")
    if body["status"] == 401:
        extra.setdefault("WWW-Authenticate", 'Bearer realm="tenure"')
    return _written(body, extra)


def _written(body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        json.dumps(body).encode("ascii"), status_code=body["status"], media_type=MEDIA_TYPE, headers=headers
    )


def install(app: FastAPI) -> None:
    """Every way out of the app that is an error goes through here."""
    app.add_exception_handler(TenureError, _tenure)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(ValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _bug)


async def answer(request: Request, error: Exception) -> Response:
    """The same answer for who calls an endpoint without the app around it; what nobody foresaw is logged."""
    if isinstance(error, TenureError):
        return await _tenure(request, error)
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return await _bug(request, error)


def also_for_people(app: FastAPI, shown: Callable[[Request, Mapping[str, Any]], Response]) -> None:
    """Outside the API a browser gets the same error as a page, made by `shown` from the problem."""

    def wrapped(handler: Handler) -> Handler:
        async def choose(request: Request, error: Exception) -> Response:
            answer = await handler(request, error)
            if "text/html" not in request.headers.get("accept", "") or request.url.path.startswith(
                ("/api/", "/static/")
            ):
                return answer
            return shown(request, json.loads(bytes(answer.body)))

        return choose

    for kind, handler in ((TenureError, _tenure), (RequestValidationError, _validation), (HTTPException, _http)):
        app.add_exception_handler(kind, wrapped(handler))


async def _tenure(_: Request, error: Exception) -> Response:
    assert isinstance(error, TenureError)
    if status_of(error) == 500:
        _log.error("a fault of the house: %s", error.message, exc_info=error)
    return respond(error)


async def _validation(_: Request, error: Exception) -> Response:
    """What pydantic refuses: a parameter (its place comes first in `loc`) or a part of a body."""
    if isinstance(error, RequestValidationError):
        found = [(item["loc"][1:] or item["loc"], item["msg"]) for item in error.errors()]
    else:
        assert isinstance(error, ValidationError)
        found = [(item["loc"], item["msg"]) for item in error.errors(include_url=False, include_input=False)]
    problems = [
        {"field": ".".join(str(part) for part in loc), "message": message.removeprefix("Value error, ")}
        for loc, message in found
    ]
    first = problems[0]
    body = problem(InvalidRequest(f"{first['field']}: {first['message']}", field=first["field"]))
    return _written(body | {"problems": problems})


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    match error.status_code:
        case 404:
            fault: TenureError = NotFound(f"there is no {request.url.path}; /openapi.json lists what there is")
        case 405:
            allow = headers["Allow"] = ", ".join(_methods(request)) or "nothing"
            headers.pop("allow", None)
            fault = InvalidRequest(
                f"{request.url.path} does not take {request.method}; it takes {allow}", code="MethodNotAllowed"
            )
        case _:
            fault = InvalidRequest(str(error.detail), code="HTTPError")
    return respond(fault, status=error.status_code, headers=headers)


def _methods(request: Request) -> list[str]:
    """Every method that some route has for this path: the router itself names those of the first route only."""
    router = request.app.router
    return [
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in router.routes)
    ]


async def _bug(_: Request, error: Exception) -> Response:
    """The server's log has the story; the caller is told that it is not their fault, and no more."""
    return respond(HouseFault(f"a bug of tenure's ({type(error).__name__}); the daemon's log has the story"))
