"""Tokens: who may come in over TCP, what each may do, and how much of its limits is used.

What was used is the gateway's word, which it keeps in `$TENURE_HOME/gateway/use.json`; it is read here and never written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tenure.control import verbs
from tenure.control.caller import operators_only
from tenure.control.clock import wire
from tenure.domain.errors import InvalidRequest, NotFound
from tenure.domain.ids import Instant
from tenure.manifests.durations import parse_duration
from tenure.manifests.instants import parse_instant
from tenure.portal.grants import Grant
from tenure.portal.tokens import TokenStore

from .context import Asking, Body, Home, Reply, problems
from .jobs import takes
from .wire.tokens import ChangeToken, CheckToken, CreatedToken, NewToken, TokenLimits, TokenRow

__all__ = ["router"]

router = APIRouter(tags=["tokens"])

MINUTE, DAY = 60.0, 86_400


@router.get("/tokens", operation_id="list_tokens", summary="Tokens, their rights and limits, and their use so far", responses={200: {"model": list[TokenRow]}, **problems(403)}, response_model=None)  # fmt: skip
def list_tokens(platform: Home, request: Request, caller: Asking) -> Response:
    operators_only(caller, "list tokens")
    return Reply(_with_use(platform, _store(request).ls()))


@router.post("/tokens", status_code=201, operation_id="create_token", summary="Create a token; it is shown this once", openapi_extra=takes(NewToken, required=True), responses={201: {"model": CreatedToken}, **problems(400, 403, 409, 422)}, response_model=None)  # fmt: skip
def create_token(platform: Home, request: Request, caller: Asking, body: Body) -> Response:
    operators_only(caller, "create tokens")
    asked = NewToken.model_validate(body)
    grant = Grant(role=asked.role, **_values(platform, asked, set(body) - {"name", "role"}))
    token = _store(request).create(asked.name, grant, _diary(platform, caller))
    return Reply(
        {**_row(platform, request, asked.name), "token": token},
        status_code=201,
        headers={"Cache-Control": "no-store", "Location": f"/api/v1/tokens/{asked.name}"},
    )


@router.patch("/tokens/{name}", operation_id="change_token", summary="Change a token's limits; it stays the same token", openapi_extra=takes(ChangeToken, required=True), responses={200: {"model": TokenRow}, **problems(400, 403, 404, 422)}, response_model=None)  # fmt: skip
def change_token(platform: Home, request: Request, caller: Asking, name: str, body: Body) -> Response:
    operators_only(caller, "change tokens")
    changes = _values(platform, ChangeToken.model_validate(body), set(body))
    _store(request).change(name, changes, _diary(platform, caller))
    return Reply(_row(platform, request, name))


@router.post("/tokens:check", operation_id="check_token", summary="Whose token has this SHA-256, and what it may do: the gateway asks", openapi_extra=takes(CheckToken, required=True), responses={200: {"model": dict[str, Any]}, **problems(400, 403, 404, 422)}, response_model=None)  # fmt: skip
def check_token(platform: Home, request: Request, caller: Asking, body: Body) -> Response:
    """An expired one is named too, so that its owner can be told."""
    operators_only(caller, "ask about tokens")
    token = _store(request).of_digest(bytes.fromhex(CheckToken.model_validate(body).sha256))
    if token is None:
        raise NotFound("no token of this platform has that digest")
    return Reply(token.public(platform.clock.now()))


@router.delete("/tokens/{name}", status_code=204, operation_id="revoke_token", summary="Revoke a token", responses={204: {"description": "It opens nothing any more"}, **problems(403, 404)}, response_model=None)  # fmt: skip
def revoke_token(platform: Home, request: Request, caller: Asking, name: str) -> Response:
    operators_only(caller, "revoke tokens")
    _store(request).revoke(name, _diary(platform, caller))
    return Response(status_code=204)


def _store(request: Request) -> TokenStore:
    store = request.app.state.tokens
    assert isinstance(store, TokenStore)
    return store


def _diary(platform: Home, caller: Asking) -> Callable[[verbs.TokenChange], None]:
    return partial(verbs.record_token, platform, caller=caller)


def _values(platform: Home, asked: TokenLimits, said: set[str]) -> dict[str, Any]:
    """The fields of a grant that were said.  Raises InvalidRequest."""
    values: dict[str, Any] = {name: getattr(asked, name) for name in said if name != "expires"}
    for name in ("scopes", "models"):
        if values.get(name) is not None:
            values[name] = tuple(dict.fromkeys(values[name]))
    if "expires" in said:
        values["expires_at"] = None if asked.expires is None else _until(asked.expires, platform.clock.now())
    return values


def _until(text: str, now: Instant) -> Instant:
    try:
        if text[:4].isdigit() and text[4:5] == "-":
            until = parse_instant(text, now)
        else:
            seconds = parse_duration(text)
            if text.strip().isdigit() or seconds is None:
                raise ValueError(f"{text!r} is no time to live; write 30d, 12h or an RFC 3339 time")
            until = Instant(now + int(seconds * 1e6))
    except ValueError as error:
        raise InvalidRequest(f"expires: {error}", field="expires") from None
    if until <= now:
        raise InvalidRequest(f"{text!r} is over; `tenure token revoke` ends a token", field="expires")
    return until


def _row(platform: Home, request: Request, name: str) -> dict[str, Any]:
    row = next((row for row in _with_use(platform, _store(request).ls()) if row["name"] == name), None)
    if row is None:
        raise NotFound(f"there is no token named {name!r} any more")
    known = {n for model in platform.policy.models.values() for n in (model.name, *model.aliases, *model.adapters)}
    strange = [model for model in row["models"] or () if model not in known]
    notes = [f"no model is named {model!r} now; it may be declared later" for model in strange]
    return {**row, "notes": notes}


def _with_use(platform: Home, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    now, kept = platform.clock.now() / 1e6, _kept(platform.settings.home / "gateway" / "use.json")
    return [{**row, "use": _use(kept.get(row["name"], {}), now)} for row in rows]


def _kept(path: Path) -> Mapping[str, Any]:
    try:
        tokens = json.loads(path.read_bytes())["tokens"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return tokens if isinstance(tokens, dict) else {}


def _use(kept: Any, now: float) -> dict[str, Any]:
    """Of one token; nothing where what is kept is not understood."""
    day = int(now // DAY)
    try:
        recent = [(int(r), int(t)) for tenth, r, t in kept.get("minute", ()) if tenth / 10 > now - MINUTE]
        requests, tokens = (int(sum_) for sum_ in kept.get("days", {}).get(str(day), (0, 0)))
    except (ValueError, TypeError, AttributeError):
        recent, requests, tokens = [], 0, 0
    return {
        "requests_last_minute": sum(entry[0] for entry in recent),
        "tokens_last_minute": sum(entry[1] for entry in recent),
        "requests_today": requests,
        "tokens_today": tokens,
        "renews_at": wire((day + 1) * DAY * 1_000_000),
    }
