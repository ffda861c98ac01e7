"""The composition root: one platform, put together from the rooms below and taken apart again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points

from tenure.domain.attempt import Backend
from tenure.domain.errors import InvalidRequest, Problem, Unavailable
from tenure.domain.events import Event, EventKind
from tenure.domain.ids import CardId, JobId, WorkloadKey
from tenure.domain.lifecycle import HOLDS_QUOTA
from tenure.domain.plan import Pend
from tenure.domain.workload import Card
from tenure.engine import Engine
from tenure.ledger import Cordon, Ledger
from tenure.settings import Settings
from tenure.telemetry.monitor import CardMonitor, CardSample, XidEvent
from tenure.telemetry.owners import Attribution, Owners, attribute

from . import cards as card_finding
from . import policies
from .checks import CARD_HEALTHY, card_healthy
from .clock import Clock, wire
from .conductor import Conductor
from .driving import Driver
from .ingest import Sweeper
from .models import Models
from .news import News
from .policies import HeldPolicy
from .pool import Pool
from .rounds import Rounds
from .samples import SampleLog
from .specs import SpecStore
from .watch import CardWatch

__all__ = ["Platform"]

LONGEST_HOME = 400  # bytes; SQLite's own limit is 512 with its file's name and suffixes


class Platform:
    """Everything that one `TENURE_HOME` is.  `open` reads and refuses; `start` runs; `stop` ends in order."""

    def __init__(
        self,
        *,
        settings: Settings,
        ledger: Ledger,
        backend: Backend,
        policy: HeldPolicy,
        found: card_finding.Cards,
        clock: Clock,
    ) -> None:
        self.settings, self.ledger, self.backend, self.policy = settings, ledger, backend, policy
        self.found, self.clock = found, clock
        self.pool = Pool(ledger, found.cards)
        self.news = News()
        self.specs = SpecStore(ledger)
        self.monitor = CardMonitor(found.found)
        self.watch = CardWatch(self._look_at_cards, failed=self._card_failed, looked=self._cards_looked_at)
        self._owners, self._owners_lock = Owners(), threading.Lock()
        self._reloading = threading.Lock()
        self.started_at = clock.now()
        self.began_after = 0  # the newest event that an earlier daemon wrote
        driver = Driver(
            home=settings.home,
            runs_dir=settings.runs_dir,
            ledger=ledger,
            backend=backend,
            clock=clock,
            specs=self.specs,
            fresh_engine=self._fresh_engine,
            base_env=settings.base_env,
            card_note=found.source,
        )
        sweeper = Sweeper(ledger=ledger, runs_dir=settings.runs_dir, clock=clock)
        self.conductor = Conductor(
            ledger=ledger,
            engine=self._fresh_engine(),
            backend=backend,
            clock=clock,
            news=self.news,
            specs=self.specs,
            driver=driver,
            sweeper=sweeper,
            pool=self.pool,
            controllers={CARD_HEALTHY: card_healthy(self.watch.reading)},
            look_at_cards=self.monitor.memory,
            measured=[card.id for card in found.found if card.measured],
        )
        self.rounds = Rounds(self.conductor, sweeper)
        self.models = Models(self)
        driver.before_stop = self.models.before_stop
        self._samples = SampleLog(settings.home / "telemetry")
        self._on_stop: list[Callable[[bool], None]] = []
        self.going_down = False  # doors still answer, and what comes now is for the next start
        ledger.listen(self.news.publish)

    @classmethod
    def open(cls, settings: Settings, *, cards_flag: Sequence[str] = (), backend: Backend | None = None) -> Platform:
        """Read the home, or make it.  Raises InvalidManifest, InvalidRequest or Unavailable; nothing runs yet."""
        length = len(os.fsencode(settings.home))
        if length > LONGEST_HOME:
            raise InvalidRequest(
                f"TENURE_HOME is a path of {length} bytes; SQLite opens none that long, up to {LONGEST_HOME} work"
            )
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings.runs_dir.mkdir(mode=0o700, exist_ok=True)
        settings.daemon_dir.mkdir(mode=0o700, exist_ok=True)
        found = card_finding.find(cards_flag, settings.cards_file)
        policies.ensure_default(settings.policy_dir, found.cards)
        policy = policies.read(settings.policy_dir)
        ledger = Ledger.open(settings.ledger_file or settings.ledger_url)
        return cls(
            settings=settings,
            ledger=ledger,
            backend=backend if backend is not None else _backend("local", settings),
            policy=policy,
            found=found,
            clock=Clock(),
        )

    # ------------------------------------------------------------------ running

    @property
    def engine(self) -> Engine:
        return self.conductor.engine

    @property
    def cards(self) -> tuple[Card, ...]:
        """As the engine is told of them: those out of the pool are cordoned."""
        return self.pool.cards

    def start(self) -> None:
        """Adopt what runs, decide what waits, and go on doing so."""
        self.began_after = self.ledger.last_event_id()
        self.news.publish(self.began_after)
        self.conductor.start()
        self._say(EventKind.DAEMON_STARTED, f"platform started; cards: {len(self.cards)} ({self.found.source})")
        if self.found.source == "measured":
            self.monitor.listen(self._heard_xid)
        self.watch.start()
        self.models.start()
        self.rounds.start(self.news)

    def stop(self, *, keep_jobs: bool = False, patience_s: float = 600.0) -> None:
        """`drain`, unless the jobs stay, and then `close`."""
        try:
            if not keep_jobs:
                self.drain(patience_s=patience_s)
        finally:
            self.close(jobs_go_on=keep_jobs)

    def drain(self, *, patience_s: float | None = None) -> None:
        """Every job that runs is asked to leave, and waits in the queue for the next start.  Doors still answer.

        Raises Unavailable when something has not left after `patience_s` (None: wait for as long as it takes).
        """
        self.going_down = True
        if not self.conductor.is_running:
            return
        self.conductor.drain()
        if not self.conductor.empty.wait(patience_s):
            with self.conductor.lock:
                left = sorted(x.id for x in self.conductor.live.values() if x.state in HOLDS_QUOTA)
            raise Unavailable(f"still there after {patience_s:.0f} s: job {', '.join(left)}", code="JobsRemain")

    def close(self, *, jobs_go_on: bool = False) -> None:
        """End the loops and let go of everything; supervisors are not touched.  Doors must be shut before."""
        self.models.close()
        self.rounds.close()
        self.conductor.stop()
        try:
            self._say(EventKind.DAEMON_STOPPED, "platform stopped" + (", jobs go on" if jobs_go_on else ""))
        finally:
            self.watch.close()
            self.monitor.close()
            self.ledger.close()

    def on_stop(self, callback: Callable[[bool], None]) -> None:
        """Who runs the platform hears here that a door asked it to stop; the argument is `keep_jobs`."""
        self._on_stop.append(callback)

    def ask_to_stop(self, *, keep_jobs: bool) -> None:
        self.going_down = True
        for callback in self._on_stop:
            callback(keep_jobs)

    # ------------------------------------------------------------------ looked at and changed by verbs and views

    def standing(self, key: WorkloadKey) -> tuple[Pend | None, int | None]:
        """The engine's word on a pending job, and its place in line (from 0).  Nothing for one kept outside."""
        with self.conductor.lock:
            live = self.conductor.live.get(JobId(key))
            if live is None or not live.in_engine:
                return None, None
            return self.engine.verdict(key), self.engine.position(key)

    def attribution(self, samples: Sequence[CardSample]) -> Attribution:
        """Whose processes hold the card memory that NVML sees: our jobs', and strangers'."""
        if not samples:
            return Attribution()
        with self._owners_lock:
            return attribute(samples, owners=self._owners, runs_dir=self.settings.runs_dir)

    def reload_policy(self, *, by: str) -> tuple[Problem, ...]:
        """All of the directory, or nothing: InvalidManifest leaves the old policy in force."""
        with self._reloading:  # what was read first is put in force first
            fresh = policies.read(self.settings.policy_dir)
            with self.conductor.lock:
                self.policy = fresh
                self.engine.replace_policy(fresh.current)
        self.conductor.policy_changed()
        self.models.policy_changed()
        self._say(EventKind.POLICY_LOADED, f"policy loaded from {len(fresh.files)} files by {by}")
        return fresh.problems

    def cards_changed(self) -> None:
        """A card left the pool or came back: the engine hears it now, and the loop sees to what runs there."""
        with self.conductor.lock:
            self.engine.replace_cards(self.pool.cards)
        self.conductor.cards_changed()

    # ------------------------------------------------------------------ inside

    def _fresh_engine(self) -> Engine:
        return Engine(self.policy.current, self.cards)

    def _say(self, kind: EventKind, message: str, **data: object) -> None:
        with self.ledger.transaction(durable=False) as tx:
            tx.event(Event(kind=kind, at=self.clock.now(), message=message, data={"pid": os.getpid(), **data}))

    def _heard_xid(self, fault: XidEvent) -> None:
        """The driver reported a fault: the diary says so, and a card that is itself at fault leaves the pool."""
        if self.watch.heard(fault):
            return
        where = fault.card or "a card that the driver does not name"
        message = f"the driver reports Xid {fault.code} on {where}"
        self._say(EventKind.CARDS_CHANGED, message, card=fault.card, xid=fault.code)

    def _look_at_cards(self) -> list[CardSample]:
        samples = self.monitor.sample()
        self.conductor.vacating.saw(samples)
        self._samples.saw(samples)
        return samples

    def _cards_looked_at(self) -> None:
        self.conductor.wake()  # a job may be waiting for a card to be healthy

    def _card_failed(self, card: CardId, why: str) -> None:
        """It leaves the pool by itself, and what runs there is queued again; an operator puts it back."""
        cordon = Cordon(card=card, at=self.clock.now(), by="driver", reason=why, move=True, failed=True)
        xid = why.removeprefix("Xid ").partition(":")[0]
        data = {"xid": int(xid)} if xid.isdigit() else {}
        if self.pool.take_out(cordon, message=f"card {card} has failed and left the pool: {why}", data=data):
            self.cards_changed()

    def __repr__(self) -> str:
        return f"<Platform {self.settings.home} since {wire(self.started_at)}>"


def _backend(name: str, settings: Settings) -> Backend:
    for entry in entry_points(group="tenure.backends", name=name):
        options = {"boot_id": settings.boot_id} if settings.boot_id else {}
        backend: Backend = entry.load()(settings.daemon_dir, **options)
        return backend
    raise Unavailable(f"there is no backend {name!r}; reinstall the package, its entry points are missing")
