"""Acting on what was written: starting, stopping, shrinking.  Always after the commit, never inside a transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from tenure.domain.attempt import AttemptSpec, AttemptState, Backend, Observation, Stop, StopKind
from tenure.domain.errors import LaunchError, TenureError
from tenure.domain.events import Event, EventKind
from tenure.domain.ids import Instant, JobId, RunId, run_id
from tenure.domain.lifecycle import JobEvent, JobState, Outcome
from tenure.domain.plan import Shrink
from tenure.domain.reasons import EvictionReason, PendingReason
from tenure.engine import Engine
from tenure.ledger import Change, JobRow, Ledger

from .admitting import pending_change
from .clock import Clock
from .live import Live
from .specs import SpecStore
from .workloads import processes_of

if TYPE_CHECKING:
    from .conductor import Conductor

__all__ = ["Driver", "traceparent_of"]


class Driver:
    """Collects what is to be done while the conductor holds its lock, and does it in `act`."""

    def __init__(
        self,
        *,
        home: Path,
        runs_dir: Path,
        ledger: Ledger,
        backend: Backend,
        clock: Clock,
        specs: SpecStore,
        fresh_engine: Callable[[], Engine],
        base_env: Mapping[str, str],
        card_note: str = "none",
    ) -> None:
        self._base_env = base_env
        self._home, self._runs = home, runs_dir
        self._ledger, self._backend, self._clock, self._specs = ledger, backend, clock, specs
        self.fresh_engine = fresh_engine
        self._card_note = card_note
        self.before_stop: Callable[[Live, Stop], Stop | None] = lambda live, stop: stop
        """Asked with no lock held, right before a stop is passed on: what to ask instead, or None: not yet, it comes again."""
        self._starts: list[Live] = []
        self._stops: list[tuple[Live, Stop]] = []
        self._shrinks: list[tuple[Live, Shrink]] = []
        self._given_up: list[tuple[Live, str, str]] = []
        self._pending: dict[JobId, tuple[Live, str, str]] = {}

    def run_dir(self, run: RunId) -> Path:
        return self._runs / run

    def forget(self) -> None:
        """What was collected is not done: it may have been decided in a transaction that was rolled back."""
        for collected in (self._starts, self._stops, self._shrinks, self._given_up, self._pending):
            collected.clear()

    # ------------------------------------------------------------------ collected under the lock

    def start_soon(self, live: Live) -> None:
        self._starts.append(live)

    def stop_soon(
        self, live: Live, *, by: str = "", reason: str = "", message: str = "", asked: Stop | None = None
    ) -> None:
        """Say it again after a crash costs nothing: the row still knows whether it was a cancel or an eviction."""
        if live.state is JobState.CANCELLING:
            kind = StopKind.CANCEL
        else:
            kind = StopKind.PREEMPT if by or live.reason == EvictionReason.PREEMPTED else StopKind.EVICT
        stop = asked or Stop(
            kind=kind,
            reason=reason or live.reason,
            message=message or live.message,
            by=by,
            grace_s=live.spec.grace_s,
        )
        self._stops.append((live, stop))

    def shrink_soon(self, live: Live, shrink: Shrink) -> None:
        self._shrinks.append((live, shrink))

    def pending(self, live: Live, reason: PendingReason | EvictionReason, message: str) -> None:
        self._pending[live.id] = (live, str(reason), message)

    def let_in(self, live: Live) -> None:
        """It is the engine's to say why it waits: what was to be written before that is old."""
        self._pending.pop(live.id, None)

    def give_up(self, live: Live, *, reason: PendingReason | EvictionReason, message: str) -> None:
        self._given_up.append((live, str(reason), message))

    def adopted(self, live: Live) -> None:
        live.launched = True
        with self._ledger.transaction(durable=False) as tx:
            tx.event(
                Event(
                    kind=EventKind.ATTEMPT_ADOPTED,
                    at=self._clock.now(),
                    job_id=live.id,
                    run_id=live.current_run,
                    message=f"attempt {live.attempts} was found running and is watched again",
                )
            )

    def last_run_of(self, job: JobId | None) -> RunId | None:
        """The run that a retried job replaces."""
        row = self._ledger.find_job(job) if job is not None else None
        return row.run_id if row is not None else None

    # ------------------------------------------------------------------ done after the commit

    def act(self, conductor: Conductor) -> None:
        self._write_pending(conductor)
        starts, self._starts = self._starts, []
        for live in starts:
            if live.state is JobState.ADMITTED and not live.launched:
                self._start(conductor, live)
        shrinks, self._shrinks = self._shrinks, []
        for live, shrink in shrinks:
            self._shrink(conductor, live, shrink)
        stops, self._stops = self._stops, []
        for live, stop in stops:
            if live.state in (JobState.EVICTING, JobState.CANCELLING):
                self._stop(conductor, live, stop)

    def _start(self, conductor: Conductor, live: Live) -> None:
        live.launched = True
        live.asked_at = self._clock.steady()
        try:
            self._backend.start(self.attempt_spec(live))
        except (TenureError, OSError) as error:
            code = error.exit_code if isinstance(error, LaunchError) else 126
            conductor.heard(
                Observation(
                    run_id=live.current_run,
                    state=AttemptState.LAUNCH_FAILED,
                    at=self._clock.now(),
                    reason=error.code if isinstance(error, TenureError) else type(error).__name__,
                    message=str(error),
                    exit_code=code,
                )
            )

    def _stop(self, conductor: Conductor, live: Live, stop: Stop) -> None:
        if not live.launched and self._nothing_there(live):
            with conductor.lock:
                conductor.observed_absent(live)
            conductor.wake()  # its quota is free: somebody may take it
            return
        live.launched = True
        now = self.before_stop(live, stop)
        if now is None:
            return
        live.asked_at, stop = self._clock.steady(), now
        try:
            self._backend.stop(live.current_run, str(self.run_dir(live.current_run)), stop)
        except (TenureError, OSError):
            # It may have ended this very moment; the backend's next word decides, and `observe` is asked for it.
            conductor.look_at(live)

    def _nothing_there(self, live: Live) -> bool:
        """Was it never launched?  Only the backend can say: the daemon before this one may have done it."""
        run = live.current_run
        seen = self._backend.observe([(run, str(self.run_dir(run)))])
        return all(one.state is AttemptState.ABSENT for one in seen.values())

    def _shrink(self, conductor: Conductor, live: Live, shrink: Shrink) -> None:
        stop = Stop(
            kind=StopKind.PREEMPT,
            reason=str(shrink.reason),
            message=shrink.message,
            by=str(shrink.preemptor),
            grace_s=live.spec.grace_s,
        )
        self._backend.shrink(live.current_run, str(self.run_dir(live.current_run)), shrink.count, stop)

    def _write_pending(self, conductor: Conductor) -> None:
        pending, self._pending = self._pending, {}
        given_up, self._given_up = self._given_up, []
        if not pending and not given_up:
            return
        at = self._clock.now()
        with conductor.lock:
            waiting = [item for item in pending.values() if item[0].state is JobState.QUEUED]
            with self._ledger.transaction(durable=False) as tx:
                rows = tx.move_many([pending_change(live, reason, message, at) for live, reason, message in waiting])
                for (live, _, _), row in zip(waiting, rows, strict=True):
                    if isinstance(row, JobRow):
                        live.saw(row)
                ended = [
                    (live, tx.move_many([_never(live, reason, message, at)])[0])
                    for live, reason, message in given_up
                    if live.state is JobState.QUEUED
                ]
            for live, row in ended:
                if isinstance(row, JobRow):
                    live.saw(row)
                    conductor.forget(live)
        if given_up:
            conductor.wake()

    # ------------------------------------------------------------------ what the backend is told

    def attempt_spec(self, live: Live) -> AttemptSpec:
        run, place = live.current_run, str(self.run_dir(live.current_run))
        before = run_id(live.id, live.attempts - 1) if live.attempts > 1 else self.last_run_of(live.retry_of)
        spec = replace(live.spec, array_index=live.array_index, fingerprint=live.fingerprint)
        if spec.active_deadline_s is not None and live.started_at is not None:
            left = spec.active_deadline_s - (self._clock.now() - live.started_at) / 1e6
            spec = replace(spec, time_limit_s=max(1.0, min(spec.time_limit_s or left, left)))
        elif spec.active_deadline_s is not None:
            spec = replace(spec, time_limit_s=min(spec.time_limit_s or spec.active_deadline_s, spec.active_deadline_s))
        assert live.admission is not None
        processes = processes_of(live.admission, spec)
        return AttemptSpec(
            run_id=run,
            job_id=live.id,
            number=live.attempts,
            run_dir=place,
            job=spec,
            env=self._environment(live, place, processes[0].cards if processes else ()),
            processes=processes,
            retry_of=before,
            checkpoints_of=str(self.run_dir(before)) if before is not None else None,
        )

    def _environment(self, live: Live, run_dir: str, cards: tuple[str, ...]) -> Mapping[str, str]:
        submitted = self._specs.environment(live.env_digest)
        env = dict(submitted or self._base_env)
        env.update(live.spec.env)
        env.update(
            TENURE_HOME=str(self._home),
            TENURE_RUN_DIR=run_dir,
            TENURE_JOB_ID=live.id,
            TENURE_ATTEMPT=str(live.attempts),
            TENURE_CHECKPOINT_DIR=f"{run_dir}/checkpoints",
            TENURE_CARD=self._card_note,
            CUDA_DEVICE_ORDER="PCI_BUS_ID",
            CUDA_VISIBLE_DEVICES=",".join(cards),
        )
        env.setdefault("TRACEPARENT", traceparent_of(run_dir, live.submitted_at))
        about = {"tenure.job.id": live.id, "tenure.run.id": live.current_run, "tenure.attempt": str(live.attempts)}
        given = [env["OTEL_RESOURCE_ATTRIBUTES"]] if env.get("OTEL_RESOURCE_ATTRIBUTES") else []
        env["OTEL_RESOURCE_ATTRIBUTES"] = ",".join([*given, *(f"{k}={quote(v)}" for k, v in about.items())])
        if live.array_id is not None:
            env["TENURE_ARRAY_JOB_ID"] = live.array_id
            env["TENURE_ARRAY_TASK_ID"] = str(live.array_index)
        return env


def traceparent_of(run_dir: Path | str, submitted_at: Instant) -> str:
    """A run is one trace.  Its ids follow from the run's name and birth, so that whoever reads the record finds it."""
    seed = hashlib.sha256(f"{run_dir}\0{submitted_at}".encode()).hexdigest()
    return f"00-{seed[:32]}-{seed[32:48]}-01"


def _never(live: Live, reason: str, message: str, at: Instant) -> Change:
    return Change(
        job_id=live.id,
        event=JobEvent.GIVE_UP,
        kind=EventKind.JOB_ENDED,
        at=at,
        expect_state=JobState.QUEUED,
        expect_revision=live.revision,
        message=message,
        fields={"outcome": Outcome.CANCELLED, "reason": reason, "message": message, "ended_at": at},
    )
