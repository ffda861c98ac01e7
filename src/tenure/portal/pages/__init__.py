"""The pages: a file a page, rendered on the server, complete without JavaScript and live with it.

A page answers whole, or, to htmx, with its live part only: the same address, the same template.
"""

from __future__ import annotations

from fastapi import FastAPI

from tenure.portal import problems

__all__ = ["install"]


def install(app: FastAPI) -> None:
    """Add every page and the files that they use."""
    from . import card, job, jobs, login, models, run, site, windows
    from .look import Look

    app.state.look = Look(app.state.platform)
    app.state.traffic = models.Traffic(app.state.platform)
    app.mount("/static", site.Assets())
    problems.also_for_people(app, site.trouble)
    for page in (card, jobs, job, models, windows, run, login):
        app.include_router(page.router, include_in_schema=False)
