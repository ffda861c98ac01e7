"""The ASGI app: routers, pages, errors and the gate in front of them, around one platform."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.types import ASGIApp

import tenure
from tenure.control.app import Platform

from . import problems
from .api import routers
from .api.jobs import submit
from .api.wire import BODIES
from .auth import Gate, Sessions
from .direct import Direct
from .metrics import Metrics
from .pages import install as install_pages
from .reception import Reception
from .stream import News

__all__ = ["build_app"]


def build_app(
    platform: Platform,
    *,
    news: News,
    metrics: Metrics,
    reception: Reception,
    sessions: Sessions,
    login_url: Callable[[str], str],
    allowed_uids: Collection[int] = (),
) -> ASGIApp:
    """Everything that one server answers, on either socket."""
    app = FastAPI(
        title="tenure",
        version=tenure.__version__,
        summary="One front door for every GPU job on a machine",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.platform, app.state.news, app.state.metrics = platform, news, metrics
    app.state.reception = reception
    app.state.tokens, app.state.sessions, app.state.login_url = sessions.store, sessions, login_url
    problems.install(app)
    for prefix, router in routers():
        app.include_router(router, prefix=prefix)
    _describe(app)
    install_pages(app)
    return Gate(Direct(app, {("POST", "/api/v1/jobs"): submit}), sessions=sessions, allowed_uids=allowed_uids)


def _describe(app: FastAPI) -> None:
    """Serve the document, made on the first request for it: most daemons are never asked."""
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    def serve(_: Request) -> Response:
        return JSONResponse(document())

    app.openapi = document  # type: ignore[method-assign]
    app.add_route("/openapi.json", serve, include_in_schema=False)


def _document(app: FastAPI) -> dict[str, Any]:
    """OpenAPI 3.1, with the bodies that verbs check themselves and both ways of proving who one is."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        openapi_version="3.1.0",
        routes=app.routes,
        tags=_TAGS,
    )
    _, extra = models_json_schema(
        [(kind, "validation") for kind in BODIES], ref_template="#/components/schemas/{model}"
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name, schema in extra.get("$defs", {}).items():
        schemas.setdefault(name, schema)
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path in ("/healthz", "/readyz", "/version"):
                operation["security"] = []
            for status, answer in operation["responses"].items():
                if status.isdigit() and int(status) >= 400:
                    answer["content"] = {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return document


_TAGS = [
    {"name": "jobs", "description": "What somebody submitted."},
    {"name": "runs", "description": "The records that attempts wrote of themselves."},
    {"name": "queues", "description": "Quota, use and who waits."},
    {"name": "cards", "description": "The cards and who holds them."},
    {"name": "windows", "description": "Claims of whole cards, for a time."},
    {"name": "models", "description": "Model servers that wake on request."},
    {"name": "events", "description": "The diary."},
    {"name": "policy", "description": "Kueue's objects, as they are in force."},
    {"name": "tokens", "description": "Who may come in over TCP, and what they may do."},
    {"name": "daemon", "description": "The daemon itself."},
    {"name": "health", "description": "For probes and Prometheus."},
]
