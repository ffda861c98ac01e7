"""Writing down what attempts did: started, ended, could not be launched, would not die."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenure.domain.attempt import AttemptState, Observation
from tenure.domain.events import Event, EventKind
from tenure.domain.ids import Instant, JobId, RunId, WorkloadKey, split_run_id
from tenure.domain.lifecycle import JobEvent, JobState, Outcome
from tenure.domain.reasons import PendingReason
from tenure.ledger import AttemptChange, Change, JobRow, Transaction

from .ingest import what_closed
from .live import Live
from .verdicts import Verdict, verdict
from .workloads import admission_to_json, with_count

if TYPE_CHECKING:
    from .conductor import Conductor

__all__ = ["write", "write_absent", "write_late_look"]

ENDS = frozenset({AttemptState.ENDED, AttemptState.LOST, AttemptState.LAUNCH_FAILED})


def write(conductor: Conductor, seen: Mapping[RunId, Sequence[Observation]]) -> None:
    """All of it in one transaction: first the starts, then the ends, so that a job that did both has both lines."""
    at = conductor.clock.now()
    lives = {run: conductor.live[split_run_id(run)[0]] for run in seen}
    ends = {run: next((o for o in reversed(obs) if o.state in ENDS), None) for run, obs in seen.items()}
    closed = [
        what_closed(run, conductor.driver.run_dir(run), at=at, job=lives[run].id, project=lives[run].spec.project)
        for run, end in ends.items()
        if end is not None
    ]
    with conductor.ledger.transaction(durable=False) as tx:
        started = _starts(tx, lives, seen, at)
        for run, observations in seen.items():
            _asides(tx, lives[run], observations, at, survivors_matter=ends[run] is None)
        shrunk = [lives[run] for run, obs in seen.items() if ends[run] is None and _shrunk(tx, lives[run], obs[-1], at)]
        decided = _ends(tx, lives, {run: o for run, o in ends.items() if o is not None}, at, conductor)
        tx.put_runs([row for row in closed if row is not None])
    for live in shrunk:
        assert live.admission is not None
        part = live.admission.assignments[0]
        conductor.engine.resized(WorkloadKey(live.id), part.name, part.count)
    for live in started:
        conductor.after_start(live)
    for run, outcome in decided.items():
        live = lives[run]
        conductor.run_ended(run, live)
        if outcome.final or live.state is JobState.ENDED:
            conductor.forget(live)
        else:
            conductor.after_return(live)


def write_absent(conductor: Conductor, live: Live) -> None:
    """A stop came before the start: nothing was launched, nothing will be, and its quota is free."""
    at = conductor.clock.now()
    nothing = Observation(
        run_id=live.current_run,
        state=AttemptState.ENDED,
        at=at,
        outcome=Outcome.CANCELLED if live.state is JobState.CANCELLING else Outcome.INTERRUPTED,
        reason="NeverStarted",
        message="stopped before its first process was started",
    )
    write(conductor, {live.current_run: [nothing]})


def write_late_look(conductor: Conductor, job: JobId, seen: Observation) -> None:
    """The code was not what had been submitted; that is known only now, when the attempt has ended."""
    with conductor.ledger.transaction(durable=False) as tx:
        known = tx.events(job_id=job, kinds=[EventKind.CODE_CHANGED])
        if tx.find_job(job) is not None and all(event.run_id != seen.run_id for event in known):
            tx.event(_code_changed(job, seen, conductor.clock.now()))


def _code_changed(job: JobId, seen: Observation, at: Instant) -> Event:
    message = f"the code changed between submit and start: {seen.details['code_changed']}"
    return Event(kind=EventKind.CODE_CHANGED, at=at, job_id=job, run_id=seen.run_id, message=message)


def _starts(
    tx: Transaction, lives: Mapping[RunId, Live], seen: Mapping[RunId, Sequence[Observation]], at: Instant
) -> list[Live]:
    changes: list[Change] = []
    attempts: list[AttemptChange] = []
    for run, observations in seen.items():
        live = lives[run]
        begun = next((o.started_at for o in observations if o.started_at is not None), None)
        if begun is None or any(o.state is AttemptState.LAUNCH_FAILED for o in observations):
            continue
        if live.state is JobState.ADMITTED:
            changes.append(
                Change(
                    job_id=live.id,
                    event=JobEvent.START,
                    kind=EventKind.JOB_STARTED,
                    at=at,
                    expect_state=JobState.ADMITTED,
                    expect_attempts=live.attempts,
                    message=f"attempt {live.attempts} started",
                    fields={"started_at": live.started_at or begun},
                    data={"attempt": live.attempts},
                )
            )
        attempts.append(
            AttemptChange(
                run_id=run,
                kind=EventKind.ATTEMPT_STARTED,
                at=at,
                expect_state=(AttemptState.STARTING,),
                fields={"state": AttemptState.RUNNING, "started_at": begun},
            )
        )
    started = []
    for change, row in zip(changes, tx.move_many(changes) if changes else (), strict=True):
        live = lives[RunId(f"{change.job_id}.{change.expect_attempts}")]
        if isinstance(row, JobRow):
            live.saw(row)
            started.append(live)
        else:  # a verb was faster (a cancel): the end of the attempt will say the rest
            live.saw(tx.job(live.id))
    if attempts:
        tx.update_attempts(attempts)
    return started


def _asides(
    tx: Transaction, live: Live, observations: Sequence[Observation], at: Instant, *, survivors_matter: bool
) -> None:
    for seen in observations:
        if seen.details.get("code_changed") and not _told_of_code(tx, live):
            live.code_told = live.attempts
            tx.event(_code_changed(live.id, seen, at))
    last = observations[-1]
    if survivors_matter and last.survivors and len(last.survivors) != live.survivors_told:
        live.survivors_told = len(last.survivors)
        named = ", ".join(f"{s.command} (pid {s.pid})" for s in last.survivors)
        tx.note(
            live.id,
            EventKind.JOB_SURVIVORS,
            at,
            message=f"asked to stop and still here, so its share stays taken: {named}",
            changes={"message": f"waiting for {named} to leave"},
        )


def _told_of_code(tx: Transaction, live: Live) -> bool:
    """Once an attempt, however often the backend says it: also after a restart."""
    if live.code_told == live.attempts:
        return True
    known = tx.events(job_id=live.id, kinds=[EventKind.CODE_CHANGED])
    return any(event.run_id == live.current_run for event in known)


def _shrunk(tx: Transaction, live: Live, seen: Observation, at: Instant) -> bool:
    """An elastic gang runs on with fewer processes: what the others held is free, now that they have left."""
    if live.admission is None or not live.admission.assignments or seen.processes is None or not live.spec.gang:
        return False
    before = live.admission.assignments[0].count
    if not 0 < seen.processes < before or live.state is not JobState.RUNNING:
        return False
    live.admission = with_count(live.admission, seen.processes)
    live.saw(
        tx.note(
            live.id,
            EventKind.JOB_SHRUNK,
            at,
            message=f"runs on with {seen.processes} of {before} processes",
            changes={"reservation": admission_to_json(live.admission)},
            data={"processes": seen.processes},
        )
    )
    return True


def _ends(
    tx: Transaction,
    lives: Mapping[RunId, Live],
    ends: Mapping[RunId, Observation],
    at: Instant,
    conductor: Conductor,
) -> dict[RunId, Verdict]:
    verdicts: dict[RunId, Verdict] = {}
    changes: list[Change] = []
    attempts: list[AttemptChange] = []
    for run, seen in ends.items():
        live = lives[run]
        decided = verdict(
            live.state, live.spec, seen, launch_failures=live.launch_failures, retries_used=live.retries_used
        )
        verdicts[run] = decided
        changes.append(_change(live, decided, seen, at, steady=conductor.clock.steady()))
        attempts.append(_attempt(run, decided, seen, at))
    written: dict[RunId, Verdict] = {}
    for (run, first), row in zip(verdicts.items(), tx.move_many(changes) if changes else (), strict=True):
        live = lives[run]
        if isinstance(row, JobRow):
            live.saw(row)
            written[run] = first
            continue
        # Only a cancel can have come between: with it the verdict is another one.
        live.saw(tx.job(live.id))
        written[run] = verdict(live.state, live.spec, ends[run])
        live.saw(tx.move(_change(live, written[run], ends[run], at, steady=conductor.clock.steady())))
    if attempts:
        tx.update_attempts(attempts)
    return written


def _change(live: Live, decided: Verdict, seen: Observation, at: Instant, *, steady: Instant) -> Change:
    ended_at = seen.ended_at or at
    fields: dict[str, Any] = {"reservation": None}
    ends_job = decided.final or live.state is JobState.CANCELLING
    if ends_job:
        kind = EventKind.JOB_ENDED
        fields |= {
            "outcome": decided.outcome,
            "exit_code": decided.exit_code,
            "signal": decided.signal,
            "reason": decided.reason,
            "message": decided.message,
            "ended_at": ended_at,
        }
        if decided.outcome is Outcome.CANCELLED and seen.outcome is Outcome.INTERRUPTED:
            # It had left for another reason when the cancel came; the attempt says which, the job was cancelled.
            fields |= {"reason": "Cancelled", "message": "cancelled while it was leaving"}
    else:
        kind = EventKind.JOB_LAUNCH_FAILED if decided.launch_failed else EventKind.JOB_REQUEUED
        reason = "LaunchBackoff" if decided.launch_failed else decided.reason or str(decided.outcome)
        delay = Instant(steady + int(decided.delay_s * 1e6)) if decided.delay_s else None
        fields |= {"reason": reason, "message": decided.message, "admitted_at": None, "not_before": delay}
        if live.state is JobState.EVICTING and (live.held or live.not_before is not None):
            # The eviction said until when, or that a person has to let it in: that is why it waits from here on.
            reason = PendingReason.DEACTIVATED if live.held else live.reason
            fields |= {"reason": str(reason), "message": live.message, "not_before": live.not_before}
    if decided.launch_failed:
        fields["launch_failures"] = live.launch_failures + 1
    if decided.used_retry:
        fields["retries_used"] = live.retries_used + 1
    return Change(
        job_id=live.id,
        event=decided.event,
        kind=kind,
        at=at,
        expect_state=live.state,
        expect_attempts=live.attempts,
        message=decided.message or f"attempt {live.attempts} {decided.outcome}",
        fields=fields,
        data={"attempt": live.attempts, "outcome": str(decided.outcome), "exit_code": decided.exit_code},
    )


def _attempt(run: RunId, decided: Verdict, seen: Observation, at: Instant) -> AttemptChange:
    return AttemptChange(
        run_id=run,
        kind=EventKind.ATTEMPT_ENDED,
        at=at,
        expect_state=(AttemptState.STARTING, AttemptState.RUNNING, AttemptState.STOPPING),
        fields={
            "state": AttemptState.ENDED,
            "outcome": seen.outcome or decided.outcome,
            "exit_code": decided.exit_code,
            "signal": decided.signal,
            "reason": seen.reason,
            "message": seen.message,
            "ended_at": seen.ended_at or at,
            "failed_rank": seen.failed_rank,
            "survivors": [],
        },
        message=seen.message,
    )
