"""From run directories to the ledger: what records say, so that lists and comparisons need no file.

The record stays the truth; a row is only what was read of it.  Runs that no job owns (experiments started by hand under
this home) are read as well.  The reaper fails what went quiet past the bound that the run itself declared, measured by
this machine's steady clock; a run that speaks again heals its record.
"""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from tenure.domain.events import Event, EventKind
from tenure.domain.ids import Instant, JobId, RunId, split_run_id
from tenure.domain.lifecycle import Outcome
from tenure.ledger import Ledger, RunRow
from tenure.sdk.record import (
    METRICS,
    Follower,
    Record,
    RecordWriter,
    quiet,
    read_record,
    sign_of_life,
    summary,
)

from .clock import Clock

__all__ = ["Sweeper", "what_closed"]

STAMP_SETTLES_NS = 1_000_000_000
KEPT_ANSWERS_US = 24 * 3600 * 1_000_000


def what_closed(run: RunId, run_dir: Path, *, at: Instant, job: JobId | None, project: str) -> RunRow | None:
    """Read the record of a run that has ended, without its metrics.  None where there is no record to read.

    A long run has a million lines of metrics; whoever ends a run must not wait for them.  The sweep reads them after.
    """
    try:
        record = read_record(run_dir, metrics=False)
    except OSError:
        return None
    return _row(record, run, run_dir, at=at, job=job, project=project)


def _row(record: Record, run: RunId, run_dir: Path, *, at: Instant, job: JobId | None, project: str) -> RunRow | None:
    if record.opened_at is None and record.closed is None:
        return None
    return RunRow(
        run_id=run,
        name=record.name or (record.argv[0] if record.argv else ""),
        opened_at=Instant(record.opened_at or at),
        seen_at=at,
        job_id=job,
        project=project,
        run_dir=str(run_dir),
        outcome=Outcome(record.outcome) if record.outcome else None,
        closed_at=Instant(record.closed["at"]) if record.closed else None,
        retry_of=RunId(record.retry_of) if record.retry_of else None,
        summary=summary(record),
    )


class Sweeper:
    """Looks at open runs now and then.  Remembers their last sign of life, and when it saw that sign change.

    What it remembers of a run goes when that is not open any more.
    """

    def __init__(self, *, ledger: Ledger, runs_dir: Path, clock: Clock) -> None:
        self._ledger, self._runs, self._clock = ledger, runs_dir, clock
        self._signs: dict[RunId, tuple[tuple[int, ...], Instant]] = {}
        self._closed: set[str] = set()  # runs without a job that have closed
        self._strangers: set[RunId] = set()
        self._listed_at = 0
        self._reaped: set[RunId] = set()
        self._followers: dict[RunId, Follower] = {}
        self._ended: deque[tuple[RunId, JobId, str]] = deque()

    @property
    def rests(self) -> bool:
        """No run that it knows of is open, but those that were given up."""
        return not (self._ended or self._signs.keys() - self._reaped or self._strangers - self._closed - self._reaped)

    def ended(self, run: RunId, job: JobId, project: str) -> None:
        """A job's run has closed: the next look reads the rest of it, once.  Called from the loop's thread."""
        if (self._runs / run / METRICS).exists():
            self._ended.append((run, job, project))

    def forget_answers(self) -> None:
        """Answers to idempotency keys are kept for a day."""
        before = Instant(self._clock.now() - KEPT_ANSWERS_US)
        with self._ledger.transaction(durable=False) as tx:
            tx.forget_answers(before=before)

    def sweep(self, live: dict[RunId, tuple[JobId, str]]) -> int:
        """One look.  `live` are the runs of jobs that have not ended, with their job and project."""
        written = 0
        ended = set()
        while self._ended:
            run, job, project = self._ended.popleft()
            written += self._read(run, self._runs / run, (job, project))
            ended.add(run)
        there = [run for run in self._open_runs(live) if run not in ended]  # `live` may be older than their end
        for run in there:
            directory = self._runs / run
            signs = sign_of_life(directory)
            now = self._clock.steady()
            before = self._signs.get(run)
            if before is None or before[0] != signs:
                self._signs[run] = (signs, now)
                written += self._read(run, directory, live.get(run))
            elif self._is_quiet(run, silent_s=(now - before[1]) / 1e6):
                self._reap(run, directory, silent_s=(now - before[1]) / 1e6, owner=live.get(run))
                written += 1
        for run in {*self._signs, *self._followers, *self._reaped} - {run for run in there if run not in self._closed}:
            self._forget(run)
        return written

    def _open_runs(self, live: dict[RunId, tuple[JobId, str]]) -> list[RunId]:
        """Runs of jobs that have not ended, and those that no job owns.  The latter are listed when some came or went."""
        try:
            stamp = self._runs.stat().st_mtime_ns
        except FileNotFoundError:
            return list(live)
        if stamp != self._listed_at:
            with os.scandir(self._runs) as entries:
                names = {e.name for e in entries if not _of_a_job(e.name) and (e.name in self._closed or e.is_dir())}
            self._closed &= names
            self._strangers = {RunId(name) for name in names - self._closed}
            # A directory made in the same tick of the clock would not show: believe only a stamp that has aged.
            self._listed_at = stamp if self._clock.now() * 1000 - stamp > STAMP_SETTLES_NS else 0
        return [*live, *(run for run in self._strangers if run not in live and run not in self._closed)]

    def _read(self, run: RunId, directory: Path, owner: tuple[JobId, str] | None) -> int:
        at = self._clock.now()
        job, project = owner or (None, "default")
        follower = self._followers.get(run)
        if follower is None:
            follower = self._followers[run] = Follower(directory)
        try:
            record = follower.poll()
        except OSError:
            return 0
        with self._ledger.transaction(durable=False) as tx:
            row = _row(record, run, directory, at=at, job=job, project=project)
            if row is not None:
                tx.put_run(row)
            if row is not None and run in self._reaped and row.outcome is not Outcome.FAILED:
                self._reaped.discard(run)
                message = f"run {run} spoke again after it was given up; its record is healed"
                tx.event(Event(kind=EventKind.RUN_HEALED, at=at, job_id=job, run_id=run, message=message))
        if row is not None and row.outcome is not None and run not in self._reaped and owner is None:
            self._closed.add(run)
        return 1 if row is not None else 0

    def _forget(self, run: RunId) -> None:
        self._followers.pop(run, None)
        self._signs.pop(run, None)
        self._reaped.discard(run)

    def _is_quiet(self, run: RunId, *, silent_s: float) -> bool:
        """By what was last read: nothing has been written since."""
        follower = self._followers.get(run)
        if follower is None or run in self._reaped or silent_s < 1.0:
            return False
        return quiet(follower.record, silent_s)

    def _reap(self, run: RunId, directory: Path, *, silent_s: float, owner: tuple[JobId, str] | None) -> None:
        message = f"no sign of life for {silent_s:.0f} s, longer than the run itself allows"
        writer = RecordWriter(directory, by="reaper")
        try:
            writer.closed("failed", reason="Quiet", message=message)
        finally:
            writer.close()
        self._reaped.add(run)
        self._signs[run] = (sign_of_life(directory), self._clock.steady())
        at = self._clock.now()
        job, project = owner or (None, "default")
        with self._ledger.transaction(durable=False) as tx:
            row = what_closed(run, directory, at=at, job=job, project=project)
            if row is not None:
                tx.put_run(row)
            tx.event(Event(kind=EventKind.RUN_REAPED, at=at, job_id=job, run_id=run, message=message))


def _of_a_job(name: str) -> bool:
    try:
        split_run_id(RunId(name))
    except ValueError:
        return False
    return True
