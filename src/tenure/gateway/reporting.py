"""What the platform hears of requests: what is in flight and held, what was asked, and when a model first answered.

The first word is told at once, the next at most five times a second; a sign of life while anything is going on.  What
the platform did not take is told again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from .platform import Platform
from .policy import Desk
from .request import Request

__all__ = ["Report"]

REPORT_S, ALIVE_S = 0.2, 5.0
MOST_HELD = 1000  # lines about held requests that wait to be told; the platform takes no more at once


class Report:
    """What there is to say since it was last said."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._active: set[str] = set()
        self._first: dict[str, str | None] = {}  # by model, the run of which a byte has come
        self._keep: dict[str, float] = {}
        self._held: list[dict[str, Any]] = []
        self._dirty = asyncio.Event()

    def spoke(self, request: Request) -> None:
        """The idle clock hears of inference when it comes and when it ends."""
        if request.inference and request.model:
            self._active.add(request.model)
            if request.keep_alive_s is not None and request.sent_at is not None:
                self._keep[request.model] = request.keep_alive_s
            self._dirty.set()

    def heard(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """What was to be said of models that are gone is not said of others that get their names.

        Where a model leaves, the platform waits for the word that nobody is sent to it any more.
        """
        states = {row["name"]: row["state"] for row in rows}
        self._active &= states.keys()
        self._first = {name: run for name, run in self._first.items() if name in states}
        self._keep = {name: seconds for name, seconds in self._keep.items() if name in states}
        if "draining" in states.values():
            self._dirty.set()

    def held(self, request: Request) -> None:
        state = str(self._desk.state(request.model))
        self._held.append(
            {"model": request.model, "what": request.what, "who": request.who, "request": request.id, "state": state}
        )
        self._dirty.set()

    def first_byte(self, request: Request) -> None:
        if request.inference and self._first.get(request.model) != request.run:
            self._first[request.model] = request.run
            self.spoke(request)

    async def run(self, platform: Platform, names: Iterable[str]) -> None:
        """For ever.  `names` is read anew each time."""
        while True:
            busy = any(self._desk.flying(name) or self._desk.waiting(name) for name in names)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._dirty.wait(), ALIVE_S if busy else None)
            self._dirty.clear()
            active, self._active = self._active, set()
            held, self._held = self._held, []
            keep, self._keep = self._keep, {}
            models = {
                name: {
                    "in_flight": self._desk.flying(name, inference=True),
                    "held": self._desk.waiting(name),
                    "active": name in active,
                    "first_token": name in self._first and self._first[name] == self._desk.run(name),
                    **({"keep_alive_s": keep[name]} if name in keep else {}),
                }
                for name in names
            }
            if not await platform.report({"version": platform.version, "models": models, "held": held}):
                self._active |= active
                self._held = (held + self._held)[-MOST_HELD:]
                self._keep = keep | self._keep
                self._dirty.set()
            await asyncio.sleep(REPORT_S)
