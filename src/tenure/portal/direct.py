"""The shortest way in, for requests of which hundreds come in a second: from the gate straight to their endpoint.

The endpoint is the very function that the router has, and the router still documents it.  What is left out is what the
framework does for endpoints in general (matching, dependencies, layers for errors), which costs more than such an
endpoint itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from . import problems

__all__ = ["Direct", "Endpoint"]

Endpoint = Callable[[Request], Awaitable[Response]]


class Direct:
    """An ASGI layer around the app.  `endpoints` by method and path; everything else goes to the app."""

    def __init__(self, app: FastAPI, endpoints: Mapping[tuple[str, str], Endpoint]) -> None:
        self._app, self._endpoints = app, endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get((scope["method"], scope["path"]))
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        scope["app"] = self._app
        request = Request(scope, receive, send)
        try:
            response = await endpoint(request)
        except ClientDisconnect:
            return
        except Exception as error:
            response = await problems.answer(request, error)
        await response(scope, receive, send)
