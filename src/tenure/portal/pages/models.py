"""Models: what is up, what each waits for, its last wake step by step, when it sleeps, who asked by the hour; and advice.

Promises: looking at a model asks it nothing, so a page that is open wakes none and moves no idle clock.  Waking and
putting to sleep are forms, for operators, and work without JavaScript.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from tenure.control import verbs, views
from tenure.control.advice import spell
from tenure.control.app import Platform
from tenure.control.requests_seen import Hours
from tenure.domain.errors import NotFound
from tenure.portal.api.context import Asking, Home, Reply

from .site import page, span

__all__ = ["Bar", "Step", "Traffic", "bars_of", "router", "steps_of"]

router = APIRouter()
_STEPS = (
    ("queue", "asked_at", "admitted_at"),
    ("start", "admitted_at", "started_at"),
    ("listen", "started_at", "listening_at"),
    ("load", "listening_at", "ready_at"),
    ("first token", "ready_at", "first_token_at"),
)
_ASKED = ("POST ", "PUT ", "GET ")  # the cause of a wake by a request is its first line
_UNDER_WAY = ("queued", "starting")
NARROWEST = 0.006  # of the width: a step of a moment can still be pointed at
LATEST = 30
DEAR = 100.0  # advice is kept for so many times what it cost, and a minute at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A part of a wake; `open` while it lasts.  Fractions of the width."""

    name: str
    begin: str
    end: str
    open: bool
    took: str
    left: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One hour: `height` as a fraction of the busiest."""

    count: int
    height: float
    says: str


class Traffic:
    """What all readers of these pages share: the journal is read once for all of them, and advice is not asked for twice."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._hours = Hours(platform.settings.home / "gateway")
        self._one = threading.Lock()
        self._advice: dict[str, tuple[float, dict[str, Any]]] = {}

    def hours(self, names: Sequence[str]) -> dict[str, list[int]]:
        now = time.time()
        self._hours.look(now=now)
        return {name: self._hours.of(name, now=now) for name in names}

    def advice(self, name: str) -> dict[str, Any]:
        with self._one:
            until, kept = self._advice.get(name, (0.0, {}))
            begun = time.monotonic()
            if begun >= until:
                kept = views.model_advice(self._platform, name)
                done = time.monotonic()
                self._advice[name] = (done + max(60.0, DEAR * (done - begun)), kept)
            return kept


def steps_of(wake: Mapping[str, Any], *, state: str = "ready", now: str | None = None) -> list[Step]:
    """The parts of a wake that are over, and the one that goes on while it is `queued` or `starting`.

    The first token is a part where a request asked for it; one that was woken by hand, or came back, waits for nobody.
    """
    found: list[tuple[str, str, str, bool]] = []
    for name, begin, end in _STEPS:
        if name == "first token" and not str(wake.get("cause", "")).startswith(_ASKED):
            break
        if wake.get(begin) and wake.get(end):
            found.append((name, wake[begin], wake[end], False))
        elif wake.get(begin) and now is not None and state in _UNDER_WAY:
            found.append((name, wake[begin], max(now, wake[begin]), True))
            break
    lengths = [
        max(0.0, (datetime.fromisoformat(e) - datetime.fromisoformat(b)).total_seconds()) for _, b, e, _ in found
    ]
    total = max(sum(lengths), 1e-6)
    widths = [max(length / total, NARROWEST) for length in lengths]
    whole, at, steps = sum(widths), 0.0, []
    for (name, begin, end, is_open), width in zip(found, widths, strict=True):
        took = _took(begin, end)
        steps.append(
            Step(name=name, begin=begin, end=end, open=is_open, took=took, left=at / whole, width=width / whole)
        )
        at += width
    return steps


def _took(begin: str, end: str) -> str:
    seconds = max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds())
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else span(begin, end)


def bars_of(counts: Sequence[int], *, now: datetime) -> list[Bar]:
    """One for each hour of the clock, the last the one that runs."""
    most = max([*counts, 1])
    hour = now.replace(minute=0, second=0, microsecond=0)
    bars = []
    for back, count in zip(range(len(counts) - 1, -1, -1), counts, strict=True):
        begin = (hour - timedelta(hours=back)).strftime("%H:%M")
        said = f"{begin}: {count} request{'' if count == 1 else 's'}"
        bars.append(Bar(count=count, height=count / most, says=said + (" so far" if not back else "")))
    return bars


@router.get("/models", response_model=None)
def models(request: Request, platform: Home, caller: Asking) -> Response:
    rows = _seen(request, platform)
    return page(request, "models.html", models=rows, may=caller.role == "operator")


@router.get("/models/{name}", response_model=None)
def model(request: Request, platform: Home, caller: Asking, name: str, advice: bool = False) -> Response:
    """By its name; an alias leads to it."""
    kept = platform.models.find(name)
    if kept.model.name != name:
        return RedirectResponse(f"/models/{quote(kept.model.name, safe='')}", status_code=303)
    row = next((row for row in _seen(request, platform) if row["name"] == name), None)
    if row is None:
        raise NotFound(f"there is no model {name!r}", code="NoSuchModel")  # it left in this moment
    return page(
        request,
        "model.html",
        model=row,
        may=caller.role == "operator",
        events=views.model_events(platform, name, limit=LATEST),
        advice=_traffic(request).advice(name) if advice else None,
    )


@router.get("/models/{name}/advice", response_model=None)
def advised(request: Request, platform: Home, name: str) -> Response:
    """What the plot draws: as REST has it, but asked for once for all readers."""
    return Reply(_traffic(request).advice(platform.models.find(name).model.name))


@router.post("/models/{name}/{verb}", response_model=None)
def by_hand(request: Request, platform: Home, caller: Asking, name: str, verb: Literal["wake", "sleep"]) -> Response:
    """What a button asks for.  htmx hears that it was done, and the page's own news show it; others come back to the page."""
    act = verbs.wake if verb == "wake" else verbs.sleep
    done = act(platform, name, caller=caller, cause="a button on the page")
    if request.headers.get("hx-request") == "true":
        return Response(status_code=204)
    return RedirectResponse(f"/models#model-{quote(done['name'], safe='')}", status_code=303)


def _traffic(request: Request) -> Traffic:
    traffic = request.app.state.traffic
    assert isinstance(traffic, Traffic)
    return traffic


def _seen(request: Request, platform: Platform) -> list[dict[str, Any]]:
    """The rows of REST, with what is drawn of them."""
    rows = views.models(platform)
    hours = _traffic(request).hours([row["name"] for row in rows])
    now = datetime.now(UTC)
    stamp = _stamp(now)
    idle = {kept.model.name: spell(kept.model.idle_after_s) for kept in platform.models.rows()}
    drawn = []
    for row in rows:
        name, steps = row["name"], steps_of(row["last_wake"], state=row["state"], now=stamp)
        drawn.append(
            row
            | {
                "now": stamp,
                "steps": steps,
                "together": _took(steps[0].begin, steps[-1].end) if steps else "",
                "bars": bars_of(hours[name], now=now),
                "day": sum(hours[name]),
                "idle_after": idle.get(name, ""),
                "retry_at": _stamp(now + timedelta(seconds=row["retry_after_s"])),
            }
        )
    return drawn


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
