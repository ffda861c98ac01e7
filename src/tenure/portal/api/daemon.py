"""The daemon itself: its state, its end, its tokens, and a browser's way in."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tenure.control import verbs, views
from tenure.domain.errors import NotFound
from tenure.portal.auth import Sessions
from tenure.portal.tokens import OPERATOR, TokenStore

from .context import Asking, Body, Home, Reply, operators_only, problems
from .jobs import takes
from .wire import CheckToken, NewToken, StopDaemon

__all__ = ["router"]

router = APIRouter(tags=["daemon"])


@router.get("/status", operation_id="status", summary="The doctor's view", responses={200: {"model": dict[str, Any]}, **problems()}, response_model=None)  # fmt: skip
def status(platform: Home) -> Response:
    return Reply(views.status(platform))


@router.post("/daemon:stop", status_code=202, operation_id="stop_daemon", summary="Stop the daemon", openapi_extra=takes(StopDaemon), responses={202: {"model": dict[str, Any]}, **problems(400, 403, 422)}, response_model=None)  # fmt: skip
def stop(platform: Home, caller: Asking, body: Body) -> Response:
    operators_only(caller, "stopping the daemon")
    asked = StopDaemon.model_validate(body)
    verbs.stop_daemon(platform, caller=caller, keep_jobs=asked.keep_jobs)
    return Reply({"stopping": True, "keep_jobs": asked.keep_jobs}, status_code=202)


@router.post("/daemon:login", status_code=201, operation_id="login", summary="An address that logs one browser in, once", responses={201: {"model": dict[str, str]}, **problems(403)}, response_model=None)  # fmt: skip
def login(request: Request, caller: Asking) -> Response:
    operators_only(caller, "opening the pages")
    sessions: Sessions = request.app.state.sessions
    return Reply({"url": request.app.state.login_url(sessions.issue_code(OPERATOR))}, status_code=201)


@router.get("/tokens", operation_id="list_tokens", summary="Names and roles of the tokens", responses={200: {"model": list[dict[str, str]]}, **problems(403)}, response_model=None)  # fmt: skip
def list_tokens(request: Request, caller: Asking) -> Response:
    operators_only(caller, "listing tokens")
    return Reply(_store(request).ls())


@router.post("/tokens", status_code=201, operation_id="create_token", summary="Create a token; it is shown this once", openapi_extra=takes(NewToken, required=True), responses={201: {"model": dict[str, str]}, **problems(400, 403, 409, 422)}, response_model=None)  # fmt: skip
def create_token(request: Request, caller: Asking, body: Body) -> Response:
    operators_only(caller, "creating tokens")
    asked = NewToken.model_validate(body)
    token = _store(request).create(asked.name, role=asked.role)
    return Reply(
        {"name": asked.name, "role": asked.role, "token": token},
        status_code=201,
        headers={"Cache-Control": "no-store", "Location": f"/api/v1/tokens/{asked.name}"},
    )


@router.post("/tokens:check", operation_id="check_token", summary="Whose token has this SHA-256: the gateway asks", openapi_extra=takes(CheckToken, required=True), responses={200: {"model": dict[str, str]}, **problems(400, 403, 404, 422)}, response_model=None)  # fmt: skip
def check_token(request: Request, caller: Asking, body: Body) -> Response:
    operators_only(caller, "asking about tokens")
    token = _store(request).of_digest(bytes.fromhex(CheckToken.model_validate(body).sha256))
    if token is None:
        raise NotFound("no token of this platform has that digest")
    return Reply(token.public())


@router.delete("/tokens/{name}", status_code=204, operation_id="revoke_token", summary="Revoke a token", responses={204: {"description": "It opens nothing any more"}, **problems(403, 404)}, response_model=None)  # fmt: skip
def revoke_token(request: Request, caller: Asking, name: str) -> Response:
    operators_only(caller, "revoking tokens")
    _store(request).revoke(name)
    return Response(status_code=204)


def _store(request: Request) -> TokenStore:
    store = request.app.state.tokens
    assert isinstance(store, TokenStore)
    return store
