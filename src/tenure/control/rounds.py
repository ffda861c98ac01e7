"""The rounds beside the loop: runs are read and the quiet ones reaped, what was missed is asked for, old answers go.

In a thread of its own.  A fault of one round does not end them; no driver is asked here, since one that hangs would.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from tenure.domain.ids import RunId
from tenure.domain.lifecycle import HOLDS_QUOTA

from . import vigil
from .ingest import Sweeper
from .news import News

if TYPE_CHECKING:
    from .conductor import Conductor

__all__ = ["Rounds"]

log = logging.getLogger(__name__)

ROUND_S = 1.0
REST_S = 30.0  # the same, where no run is open, nothing happens and nobody asks
FORGET_S = 3600.0


class Rounds:
    """`start` once the loop runs, `close` before it ends."""

    def __init__(self, conductor: Conductor, sweeper: Sweeper) -> None:
        self._conductor, self._sweeper = conductor, sweeper
        self._closed, self._stir = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, news: News) -> None:
        news.subscribe(lambda _: self._stir.set())
        self._thread = threading.Thread(target=self._run, name="rounds", daemon=True)
        self._thread.start()

    def look_soon(self) -> None:
        """Somebody wants to know of runs: one that no job owns may have come."""
        self._stir.set()

    def close(self) -> None:
        self._closed.set()
        self._stir.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        """Where no run is open only one without a job could come: it is looked for less often, as each look wakes a core."""
        pause, forgot = ROUND_S, -FORGET_S
        while not self._closed.wait(pause):
            pause, now = ROUND_S, time.monotonic()
            self._stir.clear()
            try:
                if now - forgot >= FORGET_S:
                    forgot = now
                    self._sweeper.forget_answers()
                with self._conductor.lock:
                    live = {
                        RunId(x.current_run): (x.id, x.spec.project)
                        for x in self._conductor.live.values()
                        if x.state in HOLDS_QUOTA
                    }
                self._sweeper.sweep(live)
                vigil.look(self._conductor)
                if self._sweeper.rests and not self._conductor.live:
                    pause = ROUND_S if self._stir.wait(REST_S) else 0.0
            except Exception:
                log.exception("a look at the runs failed; the next one follows")
