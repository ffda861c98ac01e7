"""Model servers: which are up, which are asked for, and when they may sleep.

Promises: a model has one job at most; the idle clock is moved by inference that the gateway reports, and by nothing else.
A thread of its own looks after every commit and at its timers; it changes the world through the same verbs as everybody
else.  What a look does is said in `model_life`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tenure.domain.attempt import Stop
from tenure.domain.errors import Conflict, InvalidRequest, NotFound, Unavailable
from tenure.domain.events import EventKind
from tenure.domain.ids import JobId
from tenure.domain.lifecycle import JobState
from tenure.domain.model import ModelState
from tenure.ledger import WindowRow

from .caller import INTERNAL
from .kept import Kept
from .live import Live
from .model_jobs import PROJECT, model_of, port_of
from .model_leaving import LOOK_S
from .model_life import Lives
from .model_news import ModelNews
from .namings import class_of
from .verbs.cancel import cancel
from .wakes import last_inferences, remembered
from .window_gate import shut_to

if TYPE_CHECKING:
    from .app import Platform

__all__ = ["Models"]

log = logging.getLogger(__name__)

HELD_S = 120.0  # the gateway holds no request for longer than this (`hold_s` of its limits)


class Models:
    """The models of one platform.  `start` adopts what runs; `close` ends the looking and lets servers be."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._lock = threading.RLock()
        self._kept: dict[str, Kept] = {}
        self._poke = threading.Event()
        self.news = ModelNews(platform)
        self._lives = Lives(platform, table=self._kept, lock=self._lock, news=self.news, poke=self._poke.set)
        self._thread: threading.Thread | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._known = False
        self._early: list[JobId] = []  # whose stop was asked for before the models were known
        self._shut: object = None  # which windows shut out whom, as was last told
        self.closing = False

    # ------------------------------------------------------------------ running

    def start(self) -> None:
        with self._lock:
            self._declared()
            for name, wakes in remembered(self._platform.ledger, before=self._platform.started_at).items():
                if name in self._kept:
                    self._kept[name].wakes, self._kept[name].last_wake = wakes.count, dict(wakes.last)
            for name, at in last_inferences(self._platform.settings.home / "gateway" / "requests.jsonl").items():
                if name in self._kept:
                    self._kept[name].last_inference_at = at
            self._adopt()
            self._known = True
            early, self._early = self._early, []
        for job in early:
            self._platform.conductor.changed(job)
        self._unsubscribe = self._platform.news.subscribe(self._heard)
        self._thread = threading.Thread(target=self._run, name="models", daemon=True)
        self._thread.start()

    def _heard(self, _: int) -> None:
        """After every commit, in the committing thread: nobody is woken where there is no model to look at."""
        if self._kept:
            self._poke.set()

    def close(self) -> None:
        """Idempotent.  Whoever watches is told that nothing more comes."""
        self.closing = True
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._poke.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        for kept in self._kept.values():
            kept.unprobed()
        self._lives.ports.close()
        self.news.tell()

    def policy_changed(self) -> None:
        """The documents were read again: new ones may wake, those that are gone are put to sleep."""
        with self._lock:
            self._declared()
        self.news.tell()
        self._poke.set()

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Called, from any thread, when anything that `rows` says has changed; the returned callable ends it."""
        return self.news.subscribe(callback)

    @property
    def version(self) -> int:
        """Grows with everything that `rows` says."""
        return self.news.version

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

    def wake(self, name: str, *, by: str, cause: str, insist: bool = False) -> Kept:
        """Ask for it.  Twice is once.  Within a backoff nothing happens, unless a person insists.

        Raises NotFound, and Unavailable where the platform is going down.
        """
        with self._lock:
            kept = self.find(name)
            if kept.state is not ModelState.READY:
                kept.asked_us = self._now()
            if self._platform.conductor.draining:
                raise Unavailable("the platform is going down; no model wakes", code="GoingDown")
            if kept.job is not None:
                kept.by_hand = kept.by_hand or insist
                if kept.leaving_us or kept.cancelled:
                    kept.wanted = f"{cause} by {by}"
                return kept
            if insist or (self._now() >= kept.not_before_us and not self._shut_out(kept)):
                kept.by_hand = insist
                self._lives.submit(kept, by=by, cause=cause)
            return kept

    def sleep(self, name: str, *, by: str, cause: str) -> Kept:
        """Put it to sleep: what is in flight may end within `stopTimeout`.  Asleep already is asleep.  Raises NotFound."""
        with self._lock:
            kept = self.find(name)
            if kept.job is not None and not kept.leaving_us:
                kept.wanted = ""
                self._lives.leave(kept, "Asked", f"put to sleep by {by}: {cause}")
                self._lives.step(kept)
            return kept

    def reported(self, report: Mapping[str, Any]) -> None:
        """What the gateway saw since it last spoke: for each model what is in flight and held, and what was asked."""
        with self._lock:
            now, lines = self._now(), []
            self._lives.leaving.heard_us = now
            if isinstance(report.get("version"), int):
                self._lives.leaving.seen = int(report["version"])
            for name, said in dict(report.get("models") or {}).items():
                kept = self._kept.get(name)
                if kept is None:
                    continue
                kept.in_flight, kept.held = int(said.get("in_flight", 0)), int(said.get("held", 0))
                kept.reported_us = now
                if isinstance(said.get("keep_alive_s"), int | float):
                    kept.keep_alive_s = float(said["keep_alive_s"])
                if said.get("active"):
                    self._lives.asked(kept)
                if said.get("first_token"):
                    self._lives.answered(kept)
            for held in list(report.get("held") or [])[:1000]:
                kept = self._kept.get(str(held.get("model")))
                if kept is not None:
                    what = str(held.get("what") or "a request")
                    lines.append(self.news.line(EventKind.MODEL_HELD, kept, f"{what} is held: {kept.model.name} is {held.get('state')}", **held))  # fmt: skip
            self.news.write(lines)
        self._poke.set()

    def before_stop(self, live: Live, stop: Stop) -> Stop | None:
        """The conductor is about to ask a job to leave: what to ask instead, or None: it is told again when it is time."""
        if live.spec.project != PROJECT:
            return stop
        with self._lock:
            if (
                self._thread is None
                and live.state is JobState.EVICTING
                and model_of(live) in self._platform.policy.models
            ):
                self._early.append(live.id)
                return None
            kept = next((kept for kept in self._kept.values() if kept.job == live.id), None)
            answer = self._lives.leaving.may_stop(kept, live, stop) if kept is not None else stop
        if answer is None:
            self._poke.set()
        return answer

    # ------------------------------------------------------------------ the loop

    def _run(self) -> None:
        while not self.closing:
            self._poke.wait(self._patience())
            self._poke.clear()
            if self.closing:
                return
            with self._lock:
                looks: list[Callable[[], None]] = [partial(self._lives.step, kept) for kept in self._kept.values()]
                failed = [look for look in (*looks, self._look_at_windows) if not _done(look)]
            if failed:
                time.sleep(LOOK_S)  # whatever is poked meanwhile: it may be for what has failed

    def _patience(self) -> float | None:
        with self._lock:
            busy = [k for k in self._kept.values() if k.job is not None or (k.model.resident and not self.closing)]
            patience = min((self._lives.leaving.patience_s(kept) for kept in busy), default=LOOK_S)
        return patience if busy or self._platform.conductor.windows.rows else None

    def window_of(self, kept: Kept) -> WindowRow | None:
        """The window in which it cannot wake; None for one that is up, and where it can."""
        conductor, policy = self._platform.conductor, self._platform.policy.current
        if kept.state in (ModelState.STARTING, ModelState.READY) or not conductor.windows.rows:
            return None
        try:
            priority, _ = class_of(policy, kept.model.priority_class)
        except InvalidRequest:  # it cannot be woken at all, and a wake says so
            return None
        with conductor.lock:
            return shut_to(conductor, kept.model, priority=priority)

    def _shut_out(self, kept: Kept) -> bool:
        """A request does not put it in line behind a window that it will not wait for; the gateway is told so again."""
        row = self.window_of(kept)
        if row is None or self._platform.conductor.windows.over_by(row) - self._now() <= HELD_S * 1e6:
            return False
        self.news.tell()
        return True

    def _look_at_windows(self) -> None:
        """Whoever watches is told when a window shuts somebody out, or does so no longer.

        By the count of changes, too: what came and went between two looks may have been seen by who was told of another.
        """
        changes = self._platform.conductor.windows.changes
        found = ((kept.model.name, self.window_of(kept)) for kept in self._kept.values())
        shut = changes, frozenset((name, f"{row.id} {row.state}") for name, row in found if row is not None)
        if shut != self._shut:
            self._shut = shut
            self.news.tell()

    # ------------------------------------------------------------------ inside

    def _declared(self) -> None:
        declared = self._platform.policy.models
        for name, model in declared.items():
            if name in self._kept:
                kept = self._kept[name]
                if kept.model != model:  # what had failed was another
                    kept.failures = kept.not_before_us = 0
                kept.model = model
            else:
                self._kept[name] = Kept(model)
        for name, kept in list(self._kept.items()):
            if name not in declared:
                if kept.job is None:
                    del self._kept[name]
                elif not kept.leaving_us:
                    self._lives.leave(kept, "Undeclared", "it is no longer declared")

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
            kept.job, kept.port, kept.asked_us, kept.adopted = live.id, port_of(live), now, live.current_run
            if kept.port is not None:
                self._lives.ports.keep(kept.port)
            last = kept.last_inference_at or kept.last_wake.get("ready_at")
            said = self._was_leaving(live)
            if last is not None:  # the idle clock goes on; without a word it begins anew
                kept.asked_us = now - max(0, self._platform.clock.now() - last)
            self._lives.step(kept)
            if said is not None and kept.run == live.current_run:
                self._lives.resume(kept, *said)

    def _was_leaving(self, live: Live) -> tuple[str, str] | None:
        """Reason and message, where an earlier daemon let a run that was up leave: what was asked for stays so."""
        if live.state is not JobState.RUNNING:
            return None
        told = self._platform.ledger.events(job_id=live.id, kinds=[EventKind.MODEL_CHANGED], limit=1, newest=True)
        if not told or told[0].run_id != live.current_run or told[0].data.get("state") != ModelState.DRAINING:
            return None
        return str(told[0].data.get("reason", "")), told[0].message.partition(": ")[2]

    def _begins_now(self, live: Live) -> bool:
        """It waits, or this daemon let it in again: nothing of it was up before."""
        attempts = self._platform.ledger.attempts(live.id)
        return live.state is JobState.QUEUED or attempts[-1].created_at >= self._platform.started_at

    def _drop(self, live: Live) -> None:
        try:
            cancel(self._platform, live.id, caller=INTERNAL, reason="a model wakes when somebody asks for it")
        except Conflict:
            return

    def _now(self) -> int:
        return self._platform.clock.steady()


def _done(look: Callable[[], None]) -> bool:
    """A fault at one model is none of the others', and the next look follows."""
    try:
        look()
    except Exception:
        log.exception("a look at a model failed; the next one follows")
        return False
    return True
