"""The loop: hear what happened, decide, write it down, carry it out.

One thread owns the engine's state and makes every step that nobody asked for.  A step is always in the same order:

1. take all news from the inbox (submissions, verbs, observations of attempts, timers);
2. write what the observations mean, one guarded change each, in one transaction;
3. run scheduling cycles until they come to rest, and write their plan, refused job by job where the world moved;
4. only then act: start what was admitted, stop what was evicted.  Acting is idempotent, so a crash between 3 and 4 is
   repaired by `recover`, which looks at the ledger and does step 4 again.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tenure.domain.attempt import Backend, Observation, Stop
from tenure.domain.errors import TenureError
from tenure.domain.ids import CardId, Instant, JobId, RunId, WorkloadKey, split_run_id
from tenure.domain.job import JobSpec
from tenure.domain.lifecycle import HOLDS_QUOTA, JobState
from tenure.domain.plan import Evict, Plan
from tenure.domain.reasons import EvictionReason, PendingReason
from tenure.domain.workload import Card
from tenure.engine import Engine
from tenure.ledger import JobRow, Ledger
from tenure.telemetry.monitor import CardSample

from . import admitting, driving, endings, inbox, lingering, window_gate
from .checks import Controller, Inspector
from .clock import Clock
from .gates import Gates
from .inbox import CardsChanged, Changed, Drain, Inbox, NothingThere, PolicyChanged, Submitted, Wake
from .ingest import Sweeper
from .live import Live
from .news import News
from .pool import Pool
from .pulse import Pulse
from .readiness import Readiness
from .recovery import rebuild
from .specs import SpecStore
from .vacating import Lingers, Vacated, Vacating
from .windows import Windows

__all__ = ["Conductor"]

log = logging.getLogger(__name__)

MAX_CYCLES = 100_000  # a guard against a fault of ours, far above what any queue needs


class Conductor:
    """Owns `engine` (under `lock`, so that views may look) and `live`, the jobs that have not ended."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        engine: Engine,
        backend: Backend,
        clock: Clock,
        news: News,
        specs: SpecStore,
        driver: driving.Driver,
        sweeper: Sweeper,
        pool: Pool,
        controllers: Mapping[str, Controller],
        look_at_cards: Callable[[Collection[CardId]], Sequence[CardSample]],
        measured: Collection[CardId],
    ) -> None:
        self._sweeper = sweeper
        self.ledger, self.engine, self.backend = ledger, engine, backend
        self.clock, self.news, self.specs, self.driver = clock, news, specs, driver
        self.pool = pool
        self.lock = threading.RLock()
        self.live: dict[JobId, Live] = {}
        self.gates = Gates(ledger)
        self.windows = Windows(ledger, clock)
        self.inspector = Inspector(controllers)
        self.readiness = Readiness()
        self.vacating = Vacating(measured=measured, look=look_at_cards, say=self._heard_of_cards)
        self.stopping = False
        self._behind = False  # a step failed: what it had heard is told again by the ledger and the backend
        self.draining = False
        self.empty = threading.Event()
        self._inbox = Inbox()
        self._timers: list[tuple[Instant, JobId]] = []
        self._thread: threading.Thread | None = None
        self.faults = 0
        self.trouble = ""  # why the last step failed; "" where it did not
        self.pulse = Pulse()

    # ------------------------------------------------------------------ the outside

    def start(self) -> None:
        """Rebuild from the ledger, then listen and decide until `stop`."""
        self.backend.open(self.heard)
        self.recover()
        self._thread = threading.Thread(target=self._run, name="conductor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.stopping = True
        self._inbox.put(Wake())
        if self._thread is not None:
            self._thread.join(timeout=30)
        self.vacating.close()
        self.backend.close()

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def heard(self, observation: Observation) -> None:
        """Called by the backend, from any thread."""
        self._inbox.put(observation)

    def _heard_of_cards(self, news: Lingers | Vacated) -> None:
        self._inbox.put(news)

    def submitted(self, rows: Sequence[JobRow], specs: Sequence[JobSpec]) -> None:
        self._inbox.put(Submitted(rows, specs))

    def changed(self, job: JobId, stop: Stop | None = None) -> None:
        self._inbox.put(Changed(job, stop))

    def drain(self) -> None:
        """Admit nothing more and ask everything to leave; `empty` is set when it has."""
        self.draining = True  # here, so that a step which fails before it hears of it does not lose it
        self._inbox.put(Drain())

    def look_at(self, live: Live) -> None:
        """Ask the backend for the truth about one attempt, as news of its own."""
        run = live.current_run
        for seen in self.backend.observe([(run, str(self.driver.run_dir(run)))]).values():
            self.heard(seen)

    def nothing_there(self, job: JobId) -> None:
        self._inbox.put(NothingThere(job))

    def policy_changed(self) -> None:
        self._inbox.put(PolicyChanged())

    def cards_changed(self) -> None:
        self._inbox.put(CardsChanged())

    @property
    def cards(self) -> tuple[Card, ...]:
        return self.pool.cards

    def wake(self) -> None:
        self._inbox.put(Wake())

    # ------------------------------------------------------------------ the loop

    def _run(self) -> None:
        batch: list[inbox.News] = []
        while not self.stopping:
            batch += self._inbox.take(self._patience())
            if self.stopping:
                return
            try:
                if self._behind:
                    self.recover()
                    self._behind = False
                taken, batch = batch, []
                with self.pulse.step():
                    self.step(taken)
                self.trouble = ""
            except Exception as error:
                self.faults += 1
                self.trouble = (
                    str(error) if isinstance(error, TenureError) else f"a bug: {type(error).__name__}: {error}"
                )
                log.exception("a step of the conductor failed; the state is rebuilt from the ledger")
                if not self._behind:
                    self.wake()  # at once, and from then on every second until it works: a full disk may last
                self._behind = True

    def _patience(self) -> float:
        """Seconds until the next timer; at most 5 where there are jobs, so that a missed word from a backend cannot last."""
        now = self.clock.steady()
        if self._behind:
            return 1.0
        due = [at for at, _ in self._timers[:1]]
        with self.lock:
            wakeup = self.engine.next_wakeup()
        due += [at for at in (wakeup, self.readiness.next_due(), self.windows.next_due()) if at is not None]
        most = 5.0 if self.live else 60.0
        return max(0.0, min([most, *((at - now) / 1e6 for at in due)]))

    def step(self, items: Iterable[inbox.News]) -> None:
        observations: list[Observation] = []
        with self.lock:
            for item in items:
                match item:
                    case Observation():
                        observations.append(item)
                    case Vacated():
                        lingering.write_remark(self, item)
                        observations.append(item.seen)
                    case Lingers():
                        lingering.write_lingering(self, item)
                    case Submitted():
                        self._enter(item.rows, item.specs)
                    case Changed():
                        self.sync(item.job, item.stop)
                    case NothingThere():
                        self._nothing_there(item.job)
                    case Drain():
                        self._ask_all_to_leave()
                    case PolicyChanged():
                        self._policy_changed()
                        self.windows.stir()
                    case CardsChanged():
                        self.engine.replace_cards(self.cards)
                        self._clear_cards()
                        self.windows.stir()
            self._timers_due()
            if observations:
                self.observed(observations)
            self.readiness.look(self)
            self.windows.look(self)
            self.decide()
            self.inspector.look(self)
        self.driver.act(self)
        if self.draining and not any(live.state in HOLDS_QUOTA for live in self.live.values()):
            self.empty.set()

    def _nothing_there(self, job: JobId) -> None:
        live = self.live.get(job)
        if live is None or not live.launched:
            return
        if live.state is JobState.ADMITTED:
            live.launched = False
            self.driver.start_soon(live)
        elif live.state in (JobState.EVICTING, JobState.CANCELLING):
            self.observed_absent(live)

    def _ask_all_to_leave(self) -> None:
        message = "the platform is going down; the job is queued again when it is back"
        for live in list(self.live.values()):
            if live.state in (JobState.ADMITTED, JobState.RUNNING):
                key = WorkloadKey(live.id)
                admitting.evict(self, Evict(key=key, reason=EvictionReason.PLATFORM_STOPPED, message=message))

    # ------------------------------------------------------------------ jobs enter and leave

    def _enter(self, rows: Sequence[JobRow], specs: Sequence[JobSpec]) -> None:
        for row, spec in zip(rows, specs, strict=True):
            if row.id not in self.live:
                self.consider(self.adopt(Live.of(row, spec)))

    def adopt(self, live: Live) -> Live:
        """From now on it is one of those that have not ended."""
        self.live[live.id] = live
        return live

    def consider(self, live: Live) -> None:
        """Let a queued job in to the engine, or keep it outside with the reason."""
        assert live.state is JobState.QUEUED, live
        now = self.clock.steady()
        avoided = live.avoid
        shut = self.gates.check(live, now=now) or window_gate.check(self, live)
        if shut is None:
            self.driver.let_in(live)
            if live.in_engine and live.avoid != avoided:
                self.engine.update(live.workload(self.cards))
            if not live.in_engine:
                live.in_engine = True
                self.engine.add(live.workload(self.cards))
            return
        if live.in_engine:
            self.engine.remove(WorkloadKey(live.id))
            live.in_engine = False
        self._look_again(self.gates.next_ones())
        if shut.never:
            self.driver.give_up(live, reason=shut.reason, message=shut.message)
            return
        if shut.wakes is not None:
            heapq.heappush(self._timers, (shut.wakes, live.id))
        # Who has the card changes while the reason stays; the message is to say who it is now.
        moved_on = shut.reason is PendingReason.WAITING_FOR_WINDOW and live.message != shut.message
        if live.reason != shut.reason or moved_on:
            self.driver.pending(live, shut.reason, shut.message)

    def sync(self, job: JobId, stop: Stop | None = None) -> None:
        """Somebody else wrote this job's row: take over what it says now."""
        row = self.ledger.find_job(job)
        if row is None:
            return
        live = self.live.get(job)
        if row.state is JobState.ENDED:
            if live is not None:
                self.forget(live)
            return
        if live is None:
            live = self.adopt(Live.of(row, self.specs.of(row)))
        else:
            live.saw(row)
        if live.state is JobState.QUEUED:
            self.consider(live)
        elif live.state is JobState.CANCELLING:
            self.engine.evict(WorkloadKey(live.id))
            self.driver.stop_soon(live, asked=stop)
        elif live.state is JobState.EVICTING:
            self.driver.stop_soon(live, asked=stop)

    def forget(self, live: Live) -> None:
        """It has ended: its quota is free, and whoever waited for it is looked at again."""
        self.live.pop(live.id, None)
        self.engine.remove(WorkloadKey(live.id))
        live.in_engine = False
        self._look_again(self.gates.left(live))

    def _look_again(self, jobs: Iterable[JobId]) -> None:
        for job in sorted(jobs, key=self._age):
            live = self.live.get(job)
            if live is not None and live.state is JobState.QUEUED:
                self.consider(live)

    def _age(self, job: JobId) -> tuple[int, int]:
        live = self.live.get(job)
        return (live.submitted_at, live.array_index or 0) if live is not None else (0, 0)

    def _timers_due(self) -> None:
        now = self.clock.steady()
        while self._timers and self._timers[0][0] <= now:
            _, job = heapq.heappop(self._timers)
            live = self.live.get(job)
            if live is not None and live.state is JobState.QUEUED:
                self.consider(live)

    def _policy_changed(self) -> None:
        for live in self.live.values():
            if live.in_engine and live.state is JobState.QUEUED:
                self.engine.update(live.workload(self.cards))

    def _clear_cards(self) -> None:
        """What runs on a card that has failed, or is to be emptied, is asked to leave and queued again."""
        leaving = {card: cordon for card, cordon in self.pool.out.items() if cordon.move}
        if not leaving:
            return
        for live in list(self.live.values()):
            if live.state not in (JobState.ADMITTED, JobState.RUNNING) or live.admission is None:
                continue
            cordon = next((leaving[p.card] for p in live.admission.placements if p.card in leaving), None)
            if cordon is not None:
                message = f"card {cordon.card} has left the pool: {cordon.reason}"
                key = WorkloadKey(live.id)
                admitting.evict(self, Evict(key=key, reason=EvictionReason.NODE_FAILURES, message=message))

    # ------------------------------------------------------------------ what attempts did

    def observed(self, observations: Sequence[Observation]) -> None:
        """Write what the observations mean.  An observation of any but the current attempt is a stale writer's."""
        current: dict[RunId, list[Observation]] = {}
        for observation in observations:
            try:
                job, number = split_run_id(observation.run_id)
            except ValueError:
                continue
            live = self.live.get(job)
            if live is not None and live.attempts == number and live.state in HOLDS_QUOTA:
                if self.vacating.keeps(live, observation, self.driver.run_dir(observation.run_id), self.live):
                    continue  # `Vacated` follows when its cards have been looked at
                current.setdefault(observation.run_id, []).append(observation)
            elif observation.details.get("code_changed"):
                endings.write_late_look(self, job, observation)  # a short job ends before its tree has been read
        if current:
            endings.write(self, current)

    def run_ended(self, run: RunId, live: Live) -> None:
        self._sweeper.ended(run, live.id, live.spec.project)

    def admitted(self, live: Live) -> None:
        """It holds quota and a place.  It begins at once, or when its admission checks are ready."""
        if not self.inspector.concerns(self, live):
            self.begin(live)

    def begin(self, live: Live) -> None:
        self.driver.start_soon(live)
        self.readiness.began(self, live, at=self.clock.steady())

    def after_start(self, live: Live) -> None:
        self._look_again(self.gates.started(live))

    def after_return(self, live: Live) -> None:
        """The attempt has left and the job is queued again."""
        live.admission = None
        avoided = live.avoid
        shut = self.gates.check(live, now=self.clock.steady()) or window_gate.check(self, live)
        if shut is not None:
            self.engine.remove(WorkloadKey(live.id))
            live.in_engine = False
            self.consider(live)
        else:
            self.engine.released(WorkloadKey(live.id), at=self.clock.steady())
            if live.avoid != avoided:
                self.engine.update(live.workload(self.cards))

    # ------------------------------------------------------------------ deciding

    def decide(self) -> None:
        """Cycles until they come to rest: the same heads again, and nothing decided since they were last looked at."""
        if self.draining:
            return
        now = self.clock.steady()
        plans: list[Plan] = []
        seen: set[tuple[WorkloadKey, ...]] = set()  # heads of several queues may take turns: remember all of them
        for _ in range(MAX_CYCLES):
            if not self.engine.has_heads(now):
                break
            began = time.perf_counter()
            plan = self.engine.cycle(now)
            self.pulse.cycled(plan, time.perf_counter() - began)
            decided = bool(plan.admits or plan.preempts or plan.shrinks or plan.evicts)
            if decided or plan.pends or plan.livelocks:
                plans.append(plan)
            if decided:
                seen.clear()
            elif plan.order in seen:
                break
            else:
                seen.add(plan.order)
        if plans:
            admitting.write(self, plans)

    # ------------------------------------------------------------------ after a crash

    def recover(self) -> None:
        """Rebuild everything from the ledger and the backend's word, then act again on what was decided."""
        with self.lock:
            self.driver.forget()
            self.live.clear()
            self.gates = Gates(self.ledger)
            self._timers.clear()
            self.inspector.clear()
            self.readiness.clear()
            self.windows.load()
            self.engine = self.driver.fresh_engine()
            self.observed(rebuild(self))
            if self.draining:
                self._ask_all_to_leave()
            self._clear_cards()
            self.windows.look(self)
            self.decide()
            self.inspector.look(self)
        self.driver.act(self)

    def observed_absent(self, live: Live) -> None:
        """Asked to stop before anything was started: nothing ever will be, so it has left."""
        endings.write_absent(self, live)
