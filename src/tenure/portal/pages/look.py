"""One look at the house for all who look at the same time: a page with many readers asks the engine once.

What a reader gets was begun after they asked, or nothing has happened since it was; so nobody sees less than they
would have seen alone.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from tenure.control import views
from tenure.control.app import Platform

__all__ = ["Look"]

FRESH_S = 1.0  # measured memory moves without news
HOURS = 1.0
LATEST = 180
ACTIVE = 100


class Look:
    """The cards, windows, queues, running jobs and latest events of one platform."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._one = threading.Lock()
        self._begun, self._cursor = 0.0, -1
        self._seen: dict[str, Any] = {}

    def now(self) -> dict[str, Any]:
        asked = time.monotonic()
        with self._one:
            same = self._cursor == self._platform.news.cursor and asked - self._begun < FRESH_S
            if self._begun < asked and not same:
                self._begun, self._cursor = time.monotonic(), self._platform.news.cursor
                self._seen = self._take()
            return self._seen

    def _take(self) -> dict[str, Any]:
        platform, cursor = self._platform, self._platform.news.cursor
        return {
            "cards": views.cards(platform),
            "queues": views.queues(platform),
            "active": views.jobs(platform, state="admitted,running,evicting,cancelling", limit=ACTIVE)["items"],
            "timeline": views.card_timeline(platform, hours=HOURS),
            "bands": views.window_timeline(platform, hours=HOURS),
            "latest": views.events(platform, after=max(0, cursor - LATEST), limit=LATEST),
            "house": {"card_source": platform.found.source, "card_reason": platform.found.reason},
        }
