"""A browser's way in: a one-time address becomes a cookie, and leaves the address bar; or a token is pasted."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from tenure.portal.auth import SESSION_S, Sessions, cookie_name

from .site import page

__all__ = ["router"]

router = APIRouter()


@router.get("/login", response_model=None)
def form(request: Request, token: str = "", next: str = "/") -> Response:
    return _enter(request, token, next) if token else page(request, "login.html", next=_inside(next), wrong=False)


@router.post("/login", response_model=None)
async def enter(request: Request) -> Response:
    fields = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=8)
    return _enter(request, fields.get("token", [""])[0].strip(), fields.get("next", ["/"])[0])


def _enter(request: Request, presented: str, after: str) -> Response:
    sessions: Sessions = request.app.state.sessions
    cookie = sessions.exchange(presented)
    if cookie is None:
        return page(request, "login.html", status=401, next=_inside(after), wrong=True)
    answer = RedirectResponse(
        _inside(after), status_code=303, headers={"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
    )
    answer.set_cookie(cookie_name(request.scope), cookie, max_age=SESSION_S, httponly=True, samesite="lax", path="/")
    return answer


def _inside(target: str) -> str:
    """A page of ours, never another site's."""
    return target if target.startswith("/") and not target.startswith(("//", "/\\")) else "/"
