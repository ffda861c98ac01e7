"""Model servers: which are up, which are asked for, and when they may sleep.

Promises: a model has one job at most; `asleep` is said only when that job has ended, which a backend says only when every
process has left; `ready` only when a process of the run itself answers; the idle clock is moved by inference that the
gateway reports, and by nothing else.  A thread of its own looks after every commit and at its timers; it changes the
world through the same verbs as everybody else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tenure.domain.errors import Conflict, NotFound, TenureError, Unavailable
from tenure.domain.events import Event, EventKind
from tenure.domain.ids import Instant, JobId, RunId, WorkloadKey
from tenure.domain.lifecycle import JobState, Outcome
from tenure.domain.model import Model, ModelState
from tenure.domain.reasons import PendingReason
from tenure.ledger import JobRow
from tenure.manifests.rules import check_spec
from tenure.telemetry.listeners import Listener, Listeners

from .caller import INTERNAL
from .live import Live
from .model_jobs import free_port, model_of, port_of, spec_of
from .namings import priority_of, queue_of
from .probing import Probe

if TYPE_CHECKING:
    from .app import Platform

__all__ = ["Kept", "Models"]

log = logging.getLogger(__name__)

LOOK_S = 1.0  # between two looks at a model that is up: does its server still listen?
STALE_S = 15.0  # a gateway that has not spoken for this long has nothing in flight
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 1.0, 300.0
STEADY_S = 10.0  # a server that was ready for this long has not failed to start
HOPELESS = frozenset({"ExceedsMaxQuota", "NoMatchingFlavor", "Misconfigured", "Deactivated", "OnHold", "Suspended"})
"""Reasons for waiting that time alone does not mend."""


@dataclass(slots=True)
class Kept:
    """One model as it stands.  Times named `_us` are of the steady clock, the others are stamps."""

    model: Model
    state: ModelState = ModelState.ASLEEP
    reason: str = ""
    message: str = ""
    job: JobId | None = None
    port: int | None = None
    run: RunId | None = None  # the run that is starting or up
    started_us: int = 0  # when that run was first seen
    ready_run: RunId | None = None
    ready_us: int = 0
    asked_us: int = 0  # the last inference that began or ended
    last_inference_at: Instant | None = None
    in_flight: int = 0
    held: int = 0
    reported_us: int = 0
    wakes: int = 0
    failures: int = 0
    not_before_us: int = 0
    leaving_us: int = 0  # since when it is to sleep; 0 = it is not
    cancelled: bool = False  # the job's end was asked for
    blame: tuple[str, str] | None = None  # why that end is a failure
    wanted: str = ""  # somebody asked while it was leaving
    silent_us: int = 0  # since when its server no longer listens
    blocked_by: tuple[str, ...] = ()
    placeable: bool = True
    looked_us: int = 0
    probe: Probe | None = None
    last_wake: dict[str, Any] = field(default_factory=dict)

    def gone(self) -> None:
        """Nothing of a job is left."""
        if self.probe is not None:
            self.probe.cancel()
        self.job = self.port = self.run = self.ready_run = self.probe = None
        self.leaving_us = self.silent_us = self.ready_us = self.in_flight = 0
        self.cancelled, self.blame, self.blocked_by, self.placeable = False, None, (), True


class Models:
    """The models of one platform.  `start` adopts what runs; `close` ends the looking and lets servers be."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._lock = threading.RLock()
        self._kept: dict[str, Kept] = {}
        self._poke = threading.Event()
        self._subscribers: list[Callable[[], None]] = []
        self._listeners = Listeners()
        self._thread: threading.Thread | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self.version = 1
        self.closing = False

    # ------------------------------------------------------------------ running

    def start(self) -> None:
        with self._lock:
            self._declared()
            self._adopt()
        self._unsubscribe = self._platform.news.subscribe(lambda _: self._poke.set())
        self._thread = threading.Thread(target=self._run, name="models", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Idempotent.  Whoever watches is told that nothing more comes."""
        self.closing = True
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._poke.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        for kept in self._kept.values():
            if kept.probe is not None:
                kept.probe.cancel()
        self._tell()

    def policy_changed(self) -> None:
        """The documents were read again: new ones may wake, those that are gone are put to sleep."""
        with self._lock:
            self._declared()
        self._tell()
        self._poke.set()

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Called, from any thread, when anything that `rows` says has changed; the returned callable ends it."""
        with self._lock:
            self._subscribers.append(callback)

        def unsubscribe() -> None:
            with self._lock:
                if callback in self._subscribers:
                    self._subscribers.remove(callback)

        return unsubscribe

    # ------------------------------------------------------------------ asked by the doors

    def rows(self) -> list[Kept]:
        with self._lock:
            return [self._kept[name] for name in sorted(self._kept)]

    def find(self, name: str) -> Kept:
        """By its name or an alias.  Raises NotFound."""
        with self._lock:
            for kept in self._kept.values():
                if name in (kept.model.name, *kept.model.aliases, *kept.model.adapters):
                    return kept
            known = ", ".join(sorted(self._kept)) or "none"
        raise NotFound(f"there is no model {name!r}; there are: {known}", code="NoSuchModel")

    def sleeps_us(self, kept: Kept) -> int | None:
        """When it is put to sleep if nobody asks, in steady time; None where no clock runs."""
        if kept.model.resident or kept.state is not ModelState.READY or kept.in_flight or kept.leaving_us:
            return None
        return max(kept.ready_us, kept.asked_us) + int(kept.model.idle_after_s * 1e6)

    def wake(self, name: str, *, by: str, cause: str, insist: bool = False) -> Kept:
        """Ask for it.  Twice is once.  Within a backoff nothing happens, unless a person insists."""
        with self._lock:
            kept = self.find(name)
            if kept.state is not ModelState.READY:
                kept.asked_us = self._now()
            if self._platform.conductor.draining:
                raise Unavailable("the platform is going down; no model wakes", code="GoingDown")
            if kept.job is not None:
                if kept.leaving_us or kept.cancelled:
                    kept.wanted = f"{cause} by {by}"
                return kept
            if insist or self._now() >= kept.not_before_us:
                self._submit(kept, by=by, cause=cause)
            return kept

    def sleep(self, name: str, *, by: str, cause: str) -> Kept:
        """Put it to sleep: what is in flight may end within `stopTimeout`.  Asleep already is asleep."""
        with self._lock:
            kept = self.find(name)
            if kept.job is not None and not kept.leaving_us:
                kept.wanted = ""
                self._leave(kept, "Asked", f"put to sleep by {by}: {cause}")
                self._step(kept)
            return kept

    def reported(self, report: Mapping[str, Any]) -> None:
        """What the gateway saw since it last spoke: for each model what is in flight and held, and what was asked."""
        with self._lock:
            now, lines = self._now(), []
            for name, said in dict(report.get("models") or {}).items():
                kept = self._kept.get(name)
                if kept is None:
                    continue
                kept.in_flight, kept.held = int(said.get("in_flight", 0)), int(said.get("held", 0))
                kept.reported_us = now
                if said.get("active"):
                    self._asked(kept)
                if said.get("first_token") and "ready_at" in kept.last_wake:
                    kept.last_wake.setdefault("first_token_at", self._platform.clock.now())
            for held in list(report.get("held") or [])[:1000]:
                kept = self._kept.get(str(held.get("model")))
                if kept is not None:
                    what = str(held.get("what") or "a request")
                    lines.append(self._line(EventKind.MODEL_HELD, kept, f"{what} is held: {kept.model.name} is {held.get('state')}", **held))  # fmt: skip
            self._write(lines)
        self._poke.set()

    # ------------------------------------------------------------------ the loop

    def _run(self) -> None:
        while not self.closing:
            self._poke.wait(self._patience())
            self._poke.clear()
            if self.closing:
                return
            try:
                with self._lock:
                    for kept in list(self._kept.values()):
                        self._step(kept)
            except Exception:
                log.exception("a look at the models failed; the next one follows")
                self._poke.wait(LOOK_S)

    def _patience(self) -> float | None:
        with self._lock:
            busy = [k for k in self._kept.values() if k.job is not None or (k.model.resident and not self.closing)]
        return LOOK_S if busy else None

    def _step(self, kept: Kept) -> None:
        """Bring one model up to what its job says now, and do what is due."""
        now = self._now()
        if now - kept.reported_us > STALE_S * 1e6:
            kept.in_flight = kept.held = 0
        if kept.job is None:
            if kept.model.resident and kept.model.name in self._platform.policy.models and now >= kept.not_before_us:
                self._submit(kept, by="tenure", cause="resident")
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
                self._set(kept, ModelState.STARTING, "Starting", "quota is reserved; its process is being started")
            case JobState.RUNNING:
                self._begun(kept, live, now)
                self._running(kept, now)
            case JobState.EVICTING | JobState.CANCELLING:
                if kept.probe is not None:
                    kept.probe.cancel()
                    kept.probe = None
                row = self._row(kept.job)
                self._set(kept, ModelState.DRAINING, row.reason, row.message)

    def _queued(self, kept: Kept, live: Live | None, now: int) -> None:
        kept.run = None
        since_asked = now - kept.asked_us
        returning = live is not None and live.attempts > 0
        if kept.leaving_us:
            self._cancel(kept, kept.message)
        elif returning and not kept.model.resident and not kept.held and since_asked > kept.model.idle_after_s * 1e6:
            self._cancel(kept, "it lost its place, and nobody has asked for it within its idle time")
        stale = now - kept.looked_us > LOOK_S * 1e6 or kept.reason == PendingReason.PENDING_EVALUATION
        if stale or kept.state is not ModelState.QUEUED:
            kept.looked_us = now
            before = (kept.blocked_by, kept.placeable)
            reason, message = self._why(kept, live)
            self._set(kept, ModelState.QUEUED, reason, message)
            if (kept.blocked_by, kept.placeable) != before:
                self._tell()

    def _begun(self, kept: Kept, live: Live | None, now: int) -> None:
        """A run of its job is there: the first look at it sets its clock."""
        if live is not None and kept.run != live.current_run:
            kept.run, kept.started_us, kept.ready_run, kept.silent_us = live.current_run, now, None, 0
            kept.blocked_by, kept.placeable = (), True
            kept.last_wake["admitted_at"] = self._platform.clock.now()
            if kept.probe is not None:
                kept.probe.cancel()
                kept.probe = None

    def _running(self, kept: Kept, now: int) -> None:
        if kept.run is None or kept.port is None:
            return
        kept.last_wake.setdefault("started_at", self._platform.clock.now())
        if kept.ready_run != kept.run:
            self._starting(kept, now)
            return
        if now - kept.looked_us >= LOOK_S * 1e6:
            kept.looked_us = now
            listens = self._listeners.is_held(kept.port)
            kept.silent_us = 0 if listens else kept.silent_us or now
        due = self.sleeps_us(kept)
        if kept.silent_us and not kept.leaving_us:
            self._leave(kept, "NotListening", f"its server no longer listens on port {kept.port}")
            kept.blame = ("NotListening", kept.message)
        elif due is not None and now >= due:
            self._leave(kept, "Idle", f"no inference for {kept.model.idle_after_s:g} s")
        if kept.leaving_us:
            self._set(kept, ModelState.DRAINING, kept.reason, kept.message)
            if kept.in_flight == 0 or now - kept.leaving_us > kept.model.stop_timeout_s * 1e6:
                self._cancel(kept, kept.message)
            return
        self._set(kept, ModelState.READY, "", "")

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

    # ------------------------------------------------------------------ what is heard of a server

    def _is_ready(self, kept: Kept, run: RunId) -> None:
        """From the probe's thread."""
        with self._lock:
            if kept.run != run or kept.leaving_us or kept.cancelled:
                return
            kept.ready_run, kept.ready_us, kept.looked_us = run, self._now(), self._now()
            listening = kept.probe.listening_at if kept.probe is not None else None
            if listening is not None:
                kept.last_wake["listening_at"] = Instant(int(listening * 1e6))
            kept.last_wake["ready_at"] = self._platform.clock.now()
            kept.probe = None
            self._step(kept)

    def _stranger(self, kept: Kept, run: RunId, who: Listener) -> None:
        """From the probe's thread: who answers on its port is none of the run's processes."""
        with self._lock:
            if kept.run == run and not kept.cancelled:
                named = (
                    f"{who.command} (pid {who.pid})" if who.pid is not None else "a process that may not be looked at"
                )
                self._fail(kept, "PortTaken", f"port {kept.port} is taken by {named}, which is no process of run {run}")

    def _ended(self, kept: Kept, row: JobRow) -> None:
        """Every process has left."""
        now = self._now()
        blame = kept.blame
        if blame is None and not kept.cancelled and row.outcome in (Outcome.FAILED, Outcome.COMPLETED):
            how = row.message or f"exit code {row.exit_code}"
            when = "while it was loading" if kept.ready_run is None else "while it was up"
            blame = (row.reason or "ServerEnded", f"its server ended by itself {when} ({how}); `tenure logs {row.id}`")
        steady = kept.ready_us and now - kept.ready_us > STEADY_S * 1e6
        wanted = kept.wanted
        kept.gone()
        kept.wanted = ""
        if blame is not None:
            kept.failures = 1 if steady else kept.failures + 1
            wait = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (kept.failures - 1))
            kept.not_before_us = now + int(wait * 1e6)
            self._set(kept, ModelState.FAILED, *blame)
            return
        kept.failures = kept.not_before_us = 0
        self._set(kept, ModelState.ASLEEP, row.reason, row.message)
        if wanted and not self._platform.conductor.draining:
            self._submit(kept, by="tenure", cause=wanted)

    # ------------------------------------------------------------------ what is done

    def _submit(self, kept: Kept, *, by: str, cause: str) -> None:
        from .verbs.submit import submit_specs  # verbs look at views, and views at the platform

        platform = self._platform
        taken = frozenset(k.port for k in self._kept.values() if k.port is not None)
        message = f"{kept.model.name} is woken by {by}: {cause}"
        try:
            port = free_port(taken)
            spec = spec_of(kept.model, home=platform.settings.home, port=port)
            queue_of(platform.policy.current, spec)
            priority_of(platform.policy.current, spec)
            check_spec(spec)
            ((row,),) = submit_specs(platform, [spec], env_digest=None, retry_of=[None])
        except (TenureError, OSError) as error:
            kept.failures += 1
            kept.not_before_us = self._now() + int(min(LONGEST_BACKOFF_S, 2.0**kept.failures) * 1e6)
            code = error.code if isinstance(error, TenureError) else type(error).__name__
            self._set(kept, ModelState.FAILED, code, f"it cannot be woken: {error}")
            return
        kept.job, kept.port, kept.wakes = row.id, port, kept.wakes + 1
        kept.asked_us = self._now()
        kept.last_wake = {"asked_at": platform.clock.now(), "cause": cause, "by": by, "job_id": row.id}
        self._write([self._line(EventKind.MODEL_WOKEN, kept, message, cause=cause, by=by)])
        self._step(kept)

    def _leave(self, kept: Kept, reason: str, message: str) -> None:
        kept.leaving_us = self._now()
        kept.reason, kept.message = reason, message

    def _fail(self, kept: Kept, reason: str, message: str) -> None:
        kept.blame = (reason, message)
        self._leave(kept, reason, message)
        self._cancel(kept, message)

    def _cancel(self, kept: Kept, message: str) -> None:
        """Ask for its end, once.  What happens to it until it has left is the conductor's to see to."""
        from .verbs.cancel import cancel

        if kept.cancelled or kept.job is None:
            return
        kept.cancelled = True
        self._set(kept, ModelState.DRAINING, kept.reason, message)
        try:
            cancel(self._platform, kept.job, caller=INTERNAL, reason=message, grace_s=kept.model.stop_timeout_s)
        except (Conflict, NotFound):
            self._poke.set()  # it has just ended by itself

    # ------------------------------------------------------------------ inside

    def _declared(self) -> None:
        declared = self._platform.policy.models
        for name, model in declared.items():
            if name in self._kept:
                self._kept[name].model = model
            else:
                self._kept[name] = Kept(model)
        for name, kept in list(self._kept.items()):
            if name not in declared:
                if kept.job is None:
                    del self._kept[name]
                elif not kept.leaving_us:
                    self._leave(kept, "Undeclared", "it is no longer declared")

    def _adopt(self) -> None:
        """What a daemon before this one started.  What only waited would come up for nobody: it wakes on request."""
        with self._platform.conductor.lock:
            ours = [(name, live) for live in self._platform.conductor.live.values() if (name := model_of(live))]
        now = self._now()
        for name, live in ours:
            kept = self._kept.get(name)
            if kept is None or kept.job is not None or (self._begins_now(live) and not kept.model.resident):
                self._drop(live)
                continue
            kept.job, kept.port, kept.asked_us = live.id, port_of(live), now
            self._step(kept)

    def _begins_now(self, live: Live) -> bool:
        """It waits, or this daemon let it in again: nothing of it was up before."""
        attempts = self._platform.ledger.attempts(live.id)
        return live.state is JobState.QUEUED or attempts[-1].created_at >= self._platform.started_at

    def _drop(self, live: Live) -> None:
        from .verbs.cancel import cancel

        try:
            cancel(self._platform, live.id, caller=INTERNAL, reason="a model wakes when somebody asks for it")
        except Conflict:
            return

    def _why(self, kept: Kept, live: Live | None) -> tuple[str, str]:
        """Why it waits, and which models hold what it waits for."""
        platform = self._platform
        with platform.conductor.lock:
            if live is None or not live.in_engine:
                return (live.reason, live.message) if live is not None else ("PendingEvaluation", "")
            told = platform.engine.explain(WorkloadKey(live.id), platform.clock.steady())
            holders = {str(holder.key) for blocker in told.blockers for holder in blocker.held_by}
        kept.blocked_by = tuple(sorted(k.model.name for k in self._kept.values() if k.job in holders and k is not kept))
        kept.placeable = str(told.reason) not in HOPELESS
        return str(told.reason), told.message

    def _asked(self, kept: Kept) -> None:
        kept.asked_us = self._now()
        kept.last_inference_at = self._platform.clock.now()

    def _set(self, kept: Kept, state: ModelState, reason: str, message: str) -> None:
        """Say it once: a line in the diary for a new state, and a nudge for whoever watches."""
        before = (kept.state, kept.reason, kept.message)
        kept.reason, kept.message = reason, message
        if state is not kept.state:
            was, kept.state = kept.state, state
            text = f"{kept.model.name} is {state}" + (f": {message}" if message else "")
            self._write(
                [self._line(EventKind.MODEL_CHANGED, kept, text, state=str(state), was=str(was), reason=reason)]
            )
        if (state, reason, message) != before:
            self._tell()
        if state in (ModelState.ASLEEP, ModelState.FAILED) and kept.model.name not in self._platform.policy.models:
            self._kept.pop(kept.model.name, None)

    def _tell(self) -> None:
        with self._lock:
            self.version += 1
            subscribers = tuple(self._subscribers)
        for callback in subscribers:
            callback()

    def _line(self, kind: EventKind, kept: Kept, message: str, **data: object) -> Event:
        data = {"model": kept.model.name, **data}
        return Event(kind=kind, at=self._platform.clock.now(), job_id=kept.job, run_id=kept.run, message=message, data=data)  # fmt: skip

    def _write(self, lines: list[Event]) -> None:
        if lines:
            with self._platform.ledger.transaction(durable=False) as tx:
                for line in lines:
                    tx.event(line)

    def _row(self, job: JobId) -> JobRow:
        return self._platform.ledger.job(job)

    def _now(self) -> int:
        return self._platform.clock.steady()
