"""The life of a model that was asked for: waits, starts, is ready, leaves, has left; and what is done at each turn.

Promises: `asleep` is said only when its job has ended, which a backend says only when every process has left; `ready` only
when a process of the run itself answers; its end is asked for once.  Everything here happens under the one lock of
`Models`, which a probe's thread takes as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tenure.domain.errors import Conflict, NotFound, TenureError
from tenure.domain.events import EventKind
from tenure.domain.ids import Instant, JobId, RunId
from tenure.domain.lifecycle import JobState, Outcome
from tenure.domain.model import ModelState
from tenure.domain.reasons import PendingReason
from tenure.ledger import JobRow
from tenure.manifests.rules import check_spec
from tenure.telemetry.listeners import Listener, Listeners

from .caller import INTERNAL
from .clock import wire
from .kept import Kept
from .live import Live
from .model_faults import TAKEN, backoff_s, died, taken, unstarted
from .model_jobs import spec_of
from .model_leaving import LOOK_S, STILL_THERE, Leaving
from .model_news import ModelNews
from .model_ports import Ports
from .model_waiting import has_left_the_line, why_it_waits
from .namings import priority_of, queue_of
from .probing import Probe
from .verbs.cancel import cancel
from .verbs.submit import submit_specs
from .wakes import BACK

if TYPE_CHECKING:
    from .app import Platform

__all__ = ["Lives"]

STALE_S = 15.0  # a gateway that has not spoken for this long has nothing in flight
STEADY_S = 10.0  # a server that was ready for this long has not failed to start


class Lives:
    """`table` is every model by name; `poke` asks for another look soon."""

    def __init__(
        self,
        platform: Platform,
        *,
        table: dict[str, Kept],
        lock: threading.RLock,
        news: ModelNews,
        poke: Callable[[], None],
    ) -> None:
        self._platform, self._kept, self._lock, self._news, self._poke = platform, table, lock, news, poke
        self._listeners = Listeners()
        self.ports = Ports()
        self.leaving = Leaving(platform, news, self._listeners)

    def step(self, kept: Kept) -> None:
        """Bring one model up to what its job says now, and do what is due."""
        now = self._now()
        if now - kept.reported_us > STALE_S * 1e6:
            kept.in_flight = kept.held = 0
        if kept.job is None:
            if kept.model.resident and kept.model.name in self._platform.policy.models and now >= kept.not_before_us:
                self.submit(kept, by="tenure", cause="resident")
            return
        live = self._platform.conductor.live.get(kept.job)
        state = live.state if live is not None else self._row(kept.job).state
        match state:
            case JobState.ENDED:
                self._ended(kept, self._row(kept.job))
            case JobState.QUEUED:
                self._queued(kept, live, now)
            case JobState.ADMITTED:
                self._begun(kept, live, now)
                starts = "Starting", "quota is reserved; its process is being started"
                self._set(kept, ModelState.STARTING, *((kept.reason, kept.message) if kept.leaving_us else starts))
            case JobState.RUNNING:
                self._begun(kept, live, now)
                self._running(kept, now)
            case JobState.EVICTING | JobState.CANCELLING:
                kept.unprobed()
                row = self._row(kept.job)
                self._set(kept, ModelState.DRAINING, row.reason, row.message)
                if state is JobState.EVICTING and kept.drain is not None and kept.drain.stop is not None:
                    self.leaving.evicting(kept, kept.drain, now)
                self.leaving.outlived(kept, row, now)

    def _queued(self, kept: Kept, live: Live | None, now: int) -> None:
        kept.run = None
        if "admitted_at" in kept.last_wake:  # this wake has had its turn; what comes now is another one
            kept.last_wake = {"asked_at": self._platform.clock.now(), "cause": BACK, "by": "tenure", "job_id": kept.job}
        if live is not None and live.launch_failures and kept.blame is None:
            self._fail(kept, *unstarted(self._platform.ledger.attempts(live.id)[-1]))
        elif kept.leaving_us:
            self._cancel(kept, kept.message)
        elif left := has_left_the_line(kept, live, now):
            self._cancel(kept, left)
        if kept.cancelled:
            return  # its end comes with another look
        stale = now - kept.looked_us > LOOK_S * 1e6 or kept.reason == PendingReason.PENDING_EVALUATION
        if stale or kept.state is not ModelState.QUEUED:
            kept.looked_us = now
            before = (kept.blocked_by, kept.placeable)
            reason, message = why_it_waits(self._platform, kept, live, self._kept.values())
            self._set(kept, ModelState.QUEUED, reason, message)
            if (kept.blocked_by, kept.placeable) != before:
                self._news.tell()

    def _begun(self, kept: Kept, live: Live | None, now: int) -> None:
        """A run of its job is there: the first look at it sets its clock."""
        if live is not None and kept.run != live.current_run:
            attempt = self._platform.ledger.find_attempt(live.current_run)
            if attempt is None:
                return  # it is being written this moment, and with it comes another look
            admitted = attempt.created_at
            kept.run, kept.started_us, kept.ready_run, kept.silent_us = live.current_run, now, None, 0
            kept.blocked_by, kept.placeable, kept.drain, kept.server = (), True, None, None
            if kept.last_wake.get("admitted_at", admitted) != admitted:
                kept.last_wake = {"asked_at": admitted, "cause": BACK, "by": "tenure", "job_id": kept.job}
            kept.last_wake["admitted_at"] = admitted
            kept.unprobed()
            if kept.last_wake.get("cause") == BACK and admitted >= self._platform.started_at:
                text = f"{kept.model.name} is woken by tenure: {BACK}"
                self._news.write([self._news.line(EventKind.MODEL_WOKEN, kept, text, cause=BACK, by="tenure")])

    def _running(self, kept: Kept, now: int) -> None:
        if kept.run is None or kept.port is None:
            return
        if "started_at" not in kept.last_wake:
            attempt = self._platform.ledger.find_attempt(kept.run)
            if attempt is not None and attempt.started_at is not None:
                kept.last_wake["started_at"] = attempt.started_at
        if kept.ready_run != kept.run:
            self._starting(kept, now)
            return
        if now - kept.looked_us >= LOOK_S * 1e6:
            kept.looked_us = now
            listens = self._listeners.is_held(kept.port)
            kept.silent_us = 0 if listens else kept.silent_us or now
        due = kept.sleeps_us()
        if kept.silent_us and not kept.leaving_us:
            gone = f"its server no longer listens on port {kept.port}"
            named = self.leaving.still_there(kept, kept.run, now)
            kept.blame = ("NotListening", gone + (f"; it left {named}" if named else ""))
            self.leave(kept, "NotListening", gone + (STILL_THERE + named if named else ""))
        elif due is not None and now >= due:
            self.leave(kept, "Idle", f"no inference for {kept.idle_after_s:g} s")
        if kept.leaving_us:
            self._set(kept, ModelState.DRAINING, kept.reason, kept.message)
            if self.leaving.has_drained(kept, self.leaving.begin(kept, kept.run, now, began_us=kept.leaving_us), now):
                self._cancel(kept, kept.message)
            return
        steps = {step: wire(kept.last_wake.get(step)) for step in ("listening_at", "ready_at")}
        self._set(kept, ModelState.READY, "", "", **steps)

    def _starting(self, kept: Kept, now: int) -> None:
        assert kept.run is not None
        assert kept.port is not None
        if kept.leaving_us:
            self._cancel(kept, kept.message)
            return
        if kept.probe is None:
            run = kept.run
            kept.probe = Probe(
                port=kept.port,
                path=kept.model.ready_path,
                run_dir=str(self._platform.conductor.driver.run_dir(run)),
                ready=lambda: self._is_ready(kept, run),
                stranger=lambda who: self._stranger(kept, run, who),
            )
        if now - kept.started_us > kept.model.start_timeout_s * 1e6:
            self._fail(kept, "StartTimeout", f"it was not ready within {kept.model.start_timeout_s:g} s")
            return
        self._set(kept, ModelState.STARTING, "Loading", f"waits for 2xx on {kept.model.ready_path}, port {kept.port}")

    def asked(self, kept: Kept) -> None:
        kept.asked_us = self._now()
        kept.last_inference_at = self._platform.clock.now()

    def answered(self, kept: Kept) -> None:
        """The first token after a wake: told once."""
        if "ready_at" not in kept.last_wake or "first_token_at" in kept.last_wake:
            return
        line = self._news.line(EventKind.MODEL_ANSWERED, kept, "")
        asked = kept.last_wake["asked_at"]
        message = f"{kept.model.name} gives its first token, {(line.at - asked) / 1e6:.1f} s after it was asked for"
        kept.last_wake["first_token_at"] = line.at
        self._news.write([replace(line, message=message)])
        self._news.tell()

    # ------------------------------------------------------------------ what is heard of a server

    def _is_ready(self, kept: Kept, run: RunId) -> None:
        """From the probe's thread."""
        with self._lock:
            if kept.run != run or kept.leaving_us or kept.cancelled:
                return
            kept.ready_run, kept.looked_us = run, self._now()
            listening = kept.probe.listening_at if kept.probe is not None else None
            kept.server = kept.probe.listener if kept.probe is not None else None
            if listening is not None:
                kept.last_wake.setdefault("listening_at", Instant(int(listening * 1e6)))
            at = self._platform.clock.now()
            kept.ready_us = self._now() - max(0, at - kept.last_wake.setdefault("ready_at", at))
            kept.probe = None
            self.step(kept)

    def _stranger(self, kept: Kept, run: RunId, who: Listener) -> None:
        """From the probe's thread: who answers on its port is none of the run's processes."""
        with self._lock:
            if kept.run == run and not kept.cancelled:
                self._fail(kept, *taken(kept, run, who))

    def _taken_port(self, kept: Kept, row: JobRow) -> tuple[str, str] | None:
        """It ended before it was ready, and somebody is on its port: that is why."""
        if kept.ready_run is not None or kept.port is None or row.run_id is None:
            return None
        who = self._listeners.of(kept.port)
        return taken(kept, row.run_id, who[0]) if who else None

    def _ended(self, kept: Kept, row: JobRow) -> None:
        """Every process has left."""
        now = self._now()
        blame = kept.blame
        if blame is None and not kept.cancelled and row.outcome in (Outcome.FAILED, Outcome.COMPLETED):
            blame = self._taken_port(kept, row) or died(kept, row)
        again = (
            blame is not None and blame[0] == TAKEN and kept.failures == 0
        )  # no byte was sent; there are other ports
        steady = kept.ready_us and now - kept.ready_us > STEADY_S * 1e6
        wanted, by_hand = kept.wanted, kept.by_hand
        self.ports.take_back(kept.port)
        kept.gone()
        kept.wanted = ""
        if blame is not None:
            kept.failures = 1 if steady else kept.failures + 1
            kept.not_before_us = now + int(backoff_s(kept.failures) * 1e6)
            if again and not self._platform.conductor.draining:
                self.submit(kept, by="tenure", cause=f"once more, as {blame[1]}")
            else:
                self._set(kept, ModelState.FAILED, *blame)
            return
        kept.failures = kept.not_before_us = 0
        self._set(kept, ModelState.ASLEEP, row.reason, row.message)
        if wanted and not self._platform.conductor.draining:
            kept.by_hand = by_hand
            self.submit(kept, by="tenure", cause=wanted)

    # ------------------------------------------------------------------ what is done

    def submit(self, kept: Kept, *, by: str, cause: str) -> None:
        platform = self._platform
        message, port = f"{kept.model.name} is woken by {by}: {cause}", None
        try:
            port = self.ports.give()
            spec = spec_of(kept.model, home=platform.settings.home, port=port)
            queue_of(platform.policy.current, spec)
            priority_of(platform.policy.current, spec)
            check_spec(spec)
            ((row,),) = submit_specs(platform, [spec], env_digest=None, retry_of=[None])
        except (TenureError, OSError) as error:
            self.ports.take_back(port)
            kept.failures += 1
            kept.not_before_us = self._now() + int(backoff_s(kept.failures) * 1e6)
            code = error.code if isinstance(error, TenureError) else type(error).__name__
            self._set(kept, ModelState.FAILED, code, f"it cannot be woken: {error}")
            self._news.tell()  # its backoff has begun anew, though nothing else may be new
            return
        kept.job, kept.port, kept.wakes = row.id, port, kept.wakes + 1
        kept.asked_us = self._now()
        line = self._news.line(EventKind.MODEL_WOKEN, kept, message, cause=cause, by=by)
        kept.last_wake = {"asked_at": line.at, "cause": cause, "by": by, "job_id": row.id}
        self._news.write([line])
        self.step(kept)

    def leave(self, kept: Kept, reason: str, message: str) -> None:
        kept.leaving_us = self._now()
        kept.reason, kept.message = reason, message

    def resume(self, kept: Kept, reason: str, message: str) -> None:
        """Go on with the leaving of an adopted run, which was up when it began."""
        assert kept.run is not None
        kept.unprobed()
        self.leave(kept, reason, message)
        self.leaving.begin(kept, kept.run, self._now(), began_us=kept.leaving_us)  # as inherited: not yet seen up here
        kept.ready_run = kept.run
        self.step(kept)

    def _fail(self, kept: Kept, reason: str, message: str) -> None:
        kept.blame = (reason, message)
        self.leave(kept, reason, message)
        self._cancel(kept, message)

    def _cancel(self, kept: Kept, message: str) -> None:
        """Ask for its end, once.  What happens to it until it has left is the conductor's to see to."""
        if kept.cancelled or kept.job is None:
            return
        self._set(kept, ModelState.DRAINING, kept.reason, message)
        grace_s = kept.drain.grace_s(self._now()) if kept.drain is not None else kept.model.stop_timeout_s
        try:
            cancel(self._platform, kept.job, caller=INTERNAL, reason=message, grace_s=grace_s)
        except (Conflict, NotFound):
            self._poke()  # it has just ended by itself
        kept.cancelled = True  # not before: where the ledger cannot be written, the next look asks again

    # ------------------------------------------------------------------ inside

    def _set(self, kept: Kept, state: ModelState, reason: str, message: str, **data: object) -> None:
        self._news.became(kept, state, reason, message, **data)
        if state in (ModelState.ASLEEP, ModelState.FAILED) and kept.model.name not in self._platform.policy.models:
            self._kept.pop(kept.model.name, None)

    def _row(self, job: JobId) -> JobRow:
        return self._platform.ledger.job(job)

    def _now(self) -> int:
        return self._platform.clock.steady()
