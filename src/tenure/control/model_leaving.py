"""How a model's server leaves: what is in flight ends first, and who outlives it is named until he has left too.

Called under the lock of `Models`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.domain.attempt import Stop
from tenure.domain.errors import StaleWrite
from tenure.domain.events import EventKind
from tenure.domain.ids import RunId
from tenure.domain.lifecycle import JobState
from tenure.domain.model import ModelState
from tenure.ledger import JobRow
from tenure.telemetry.listeners import Listeners
from tenure.telemetry.members import members
from tenure.telemetry.owners import lives

from .draining import LOOK_US, Drain
from .kept import Kept
from .live import Live
from .model_news import ModelNews

if TYPE_CHECKING:
    from .app import Platform

__all__ = ["LOOK_S", "STILL_THERE", "Leaving"]

STILL_THERE = "; still there: "
MOMENT_S = 0.3  # workers that leave right behind their server are not worth a word
LOOK_S = 1.0  # between two looks: does its server still listen, and who is there?


class Leaving:
    """`listeners` tells who is connected; `heard` and `seen` are the gateway's word."""

    def __init__(self, platform: Platform, news: ModelNews, listeners: Listeners) -> None:
        self._platform, self._news, self._listeners = platform, news, listeners
        self.heard_us = 0  # when the gateway last spoke
        self.seen: int | None = None  # the newest table that it says it has seen; None while it does not say

    def may_stop(self, kept: Kept, live: Live, stop: Stop) -> Stop | None:
        """Its server is to be asked to leave: now, with this much grace, or later (None), and then the conductor hears.

        What takes its place drains it; a cancel of its job, by whomever, is a cancel.
        """
        if live.state is not JobState.EVICTING:
            return stop
        now = self._platform.clock.steady()
        drain = self.begin(kept, live.current_run, now, began_us=self._evicted_us(live, now))
        drain.stop = drain.stop or stop
        self._news.became(kept, ModelState.DRAINING, live.reason, live.message)
        drain.version = drain.version or self._news.version
        if not self.has_drained(kept, drain, now):
            return None
        drain.sent = True
        return drain.stop_now(now)

    def evicting(self, kept: Kept, drain: Drain, now: int) -> None:
        if not drain.sent and self.has_drained(kept, drain, now):
            drain.sent = True
            assert kept.job is not None
            self._platform.conductor.changed(kept.job, drain.stop)

    def begin(self, kept: Kept, run: RunId, now: int, *, began_us: int) -> Drain:
        if kept.drain is None or kept.drain.run != run:
            kept.drain = Drain(
                run,
                max(began_us, now - int(kept.model.stop_timeout_s * 1e6)),
                kept.model.stop_timeout_s,
                served=run in (kept.ready_run, kept.adopted),
                inherited=run == kept.adopted != kept.ready_run,
                told_us=self.heard_us,
            )
        if kept.state is ModelState.DRAINING and kept.drain.version is None:
            kept.drain.version = self._news.version
        return kept.drain

    def has_drained(self, kept: Kept, drain: Drain, now: int) -> bool:
        if not drain.is_over and now - drain.counted_us >= LOOK_US:
            drain.connections = self._listeners.connected(kept.port) if kept.port is not None else 0
            drain.counted_us = now
        return drain.look(now, in_flight=kept.in_flight, connections=drain.connections, seen=self.seen)

    def _evicted_us(self, live: Live, now: int) -> int:
        """In steady time: a daemon before this one may have decided it."""
        at = self._platform.ledger.attempt(live.current_run).evicted_at
        return now - max(0, self._platform.clock.now() - at) if at is not None else now

    def patience_s(self, kept: Kept) -> float:
        """How long nothing has to be looked at, whatever is not heard until then."""
        drain, now = kept.drain, self._platform.clock.steady()
        if drain is None or drain.is_over:
            return MOMENT_S if kept.silent_us and kept.named_of is None else LOOK_S
        return min(LOOK_S, max(0.0, (drain.due_us(now) - now) / 1e6))

    def still_there(self, kept: Kept, run: RunId, now: int) -> str:
        """Who of a run is there, in words; looked up once a second at most.  Empty: nobody."""
        if now - kept.named_us >= LOOK_S * 1e6 or kept.named_of != run:
            run_dir = str(self._platform.conductor.driver.run_dir(run))
            kept.named, kept.named_us, kept.named_of = members(run_dir), now, run
        return ", ".join(map(str, kept.named))

    def outlived(self, kept: Kept, row: JobRow, now: int) -> None:
        """Its server has gone and its job has not ended: who is there is told in the job's own story as well."""
        if kept.port is None or row.run_id is None or now - kept.looked_us < LOOK_US:
            return
        kept.looked_us = now
        if (kept.server is not None and lives(kept.server)) or self._listeners.is_held(kept.port):
            return
        kept.silent_us = kept.silent_us or now
        if now - kept.silent_us < MOMENT_S * 1e6:
            return
        told = kept.named if kept.named_of == row.run_id else ()
        named = self.still_there(kept, row.run_id, now)
        if not named or kept.named == told:
            return
        base = row.message.partition(STILL_THERE)[0]
        try:
            with self._platform.ledger.transaction(durable=False) as tx:
                tx.note(
                    row.id,
                    EventKind.JOB_SURVIVORS,
                    self._platform.clock.now(),
                    message=f"its server has left, and its share stays taken{STILL_THERE}{named}",
                    changes={"message": base + STILL_THERE + named},
                    data={"survivors": [{"pid": one.pid, "command": one.command} for one in kept.named]},
                    expect_state=row.state,
                )
        except StaleWrite:
            return  # it has moved on meanwhile
