"""REST under `/api/v1`: a file a noun.  Errors are problem+json, ids may hold `_`, verbs follow a colon."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.convertors import StringConvertor, register_url_convertor

__all__ = ["routers"]


class _Name(StringConvertor):
    """A path segment that holds no colon, so that `37:cancel` is a job and a verb."""

    regex = "[^/:]+"


register_url_convertor("name", _Name())


def routers() -> tuple[tuple[str, APIRouter], ...]:
    """Every router with its prefix."""
    from . import capacity, cards, daemon, events, health, jobs, metrics, models, policy, queues, runs, tokens, windows

    return (
        ("", health.router),
        ("", metrics.router),
        *(
            ("/api/v1", noun.router)
            for noun in (jobs, runs, queues, cards, windows, models, capacity, events, policy, tokens, daemon)
        ),
    )
