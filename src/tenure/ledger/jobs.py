"""Jobs: read them, add them, move them.

Every write is guarded by what its writer saw, takes only the steps of `domain.lifecycle.TRANSITIONS`, and leaves its
line in the diary in the same transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, Update, and_, bindparam, func, insert, select, true, update

from tenure.domain.errors import HouseFault, NotFound, StaleWrite
from tenure.domain.events import EventKind
from tenure.domain.ids import Instant, JobId
from tenure.domain.lifecycle import JobState, Outcome, next_state

from .columns import Columns, clean, digest_of
from .diary import DiaryWriter
from .rows import Change, JobRow, NewJob, Page, place_in
from .schema import is_live_job, jobs, specs
from .session import Session

__all__ = ["JOB_COLUMNS", "JobFilter", "JobReads", "JobWrites"]

JOB_COLUMNS = Columns(jobs, enums={"state": JobState, "outcome": Outcome})
_FIXED = {"seq", "id", "state", "revision", "array_id", "array_index", "spec_digest", "env_digest", "submitted_at"}
_CHANGEABLE = frozenset(JOB_COLUMNS.names) - _FIXED
_COPIED = tuple(f.name for f in fields(NewJob) if f.name not in ("spec", "submitted_at"))
_DEFAULTS: dict[str, Any] = {
    f.name: f.default for f in fields(JobRow) if f.default is None or isinstance(f.default, int | str)
} | {"labels": {}, "fingerprint": {}, "state": JobState.QUEUED.value}

_BY_ID = select(jobs).where(jobs.c.id == bindparam("id"))
_BY_IDS = select(jobs).where(jobs.c.id.in_(bindparam("ids", expanding=True)))
_ARRAY = select(jobs).where(jobs.c.array_id == bindparam("base")).order_by(jobs.c.array_index)
_LIVE = select(jobs).where(is_live_job, jobs.c.seq > bindparam("after")).order_by(jobs.c.seq).limit(bindparam("limit"))
_COUNTS = select(jobs.c.state, jobs.c.outcome, func.count()).group_by(jobs.c.state, jobs.c.outcome)
_ARRAY_COUNTS = _COUNTS.where(jobs.c.array_id == bindparam("base"))
_SPEC = select(specs.c.body).where(specs.c.digest == bindparam("digest"))
_SPECS_KNOWN = select(specs.c.digest).where(specs.c.digest.in_(bindparam("digests", expanding=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs a page shows; every part that is set must hold.  In `name`, `*` stands for anything, case aside."""

    states: frozenset[JobState] | None = None
    project: str | None = None
    name: str | None = None
    queue: str | None = None
    cluster_queue: str | None = None
    owner: str | None = None
    array: str | None = None
    outcome: Outcome | None = None
    priority_class: str | None = None


_EQUAL = ("project", "queue", "cluster_queue", "owner", "outcome", "priority_class")


def _job(row: Any) -> JobRow:
    return JobRow(**JOB_COLUMNS.read(row))


def _filtered(which: JobFilter) -> Select[Any]:
    statement = select(jobs)
    for column in _EQUAL:
        value = getattr(which, column)
        if value is not None:
            statement = statement.where(jobs.c[column] == str(value))
    if which.array is not None:
        statement = statement.where(jobs.c.array_id == which.array)
    if which.states is not None:
        statement = statement.where(_in(which.states))
    if which.name is not None:
        if "*" in which.name:
            pattern = which.name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")
            # Both sides by the database's own idea of case: SQLite knows that of ASCII alone.
            statement = statement.where(func.lower(jobs.c.name).like(func.lower(pattern), escape="\\"))
        else:
            statement = statement.where(jobs.c.name == which.name)
    return statement


def _in(states: frozenset[JobState]) -> ColumnElement[bool]:
    """Spelled so that the database walks the right index: most jobs have ended, and few are live."""
    others = frozenset(JobState) - states
    if not others:
        return true()
    if others == {JobState.ENDED}:
        return is_live_job
    if JobState.ENDED in others:
        return and_(is_live_job, jobs.c.state.in_(sorted(state.value for state in states)))
    if states == {JobState.ENDED}:
        return jobs.c.state == JobState.ENDED.value
    # "Not among the few" walks all jobs, newest first, and soon has a page; "among" would gather the ended and sort them.
    return jobs.c.state.not_in(sorted(state.value for state in others))


class JobReads(Session):
    """Questions about jobs."""

    def find_job(self, job: str) -> JobRow | None:
        row = self._row(_BY_ID, {"id": job})
        return None if row is None else _job(row)

    def job(self, job: str) -> JobRow:
        """Raises NotFound."""
        found = self.find_job(job)
        if found is None:
            raise NotFound(f"there is no job {job}; `tenure ps -a` lists the jobs there are")
        return found

    def jobs_by_id(self, ids: Sequence[str]) -> dict[JobId, JobRow]:
        """Those of the ids that exist."""
        found: dict[JobId, JobRow] = {}
        for start in range(0, len(ids), 500):
            for row in self._rows(_BY_IDS, {"ids": ids[start : start + 500]}):
                job = _job(row)
                found[job.id] = job
        return found

    def jobs(self, which: JobFilter = JobFilter(), *, limit: int = 100, cursor: str | None = None) -> Page[JobRow]:
        """Newest first.  Raises InvalidRequest for a cursor that no page gave out."""
        statement = _filtered(which)
        if cursor is not None:
            statement = statement.where(jobs.c.seq < place_in(cursor, cursor))
        rows = [_job(r) for r in self._rows(statement.order_by(jobs.c.seq.desc()).limit(limit + 1))]
        return Page(items=tuple(rows[:limit]), next=str(rows[limit - 1].seq) if len(rows) > limit else None)

    def live_jobs(self) -> Iterator[JobRow]:
        """Every job that has not ended, oldest first, a few at a time: ended jobs cost nothing here."""
        return map(_job, self._stream(_LIVE, key=0, first=0))

    def array(self, base: str) -> list[JobRow]:
        """The tasks of an array in the order of their index; empty where there is no such array."""
        return [_job(r) for r in self._rows(_ARRAY, {"base": base})]

    def counts(self, *, array: str | None = None) -> dict[tuple[JobState, Outcome | None], int]:
        """How many jobs stand where; of one array, where named."""
        rows = self._rows(_COUNTS) if array is None else self._rows(_ARRAY_COUNTS, {"base": array})
        return {(JobState(state), Outcome(outcome) if outcome else None): n for state, outcome, n in rows}

    def spec(self, digest: str) -> str:
        """The JSON text of a spec.  It never changes: whoever reads it often may keep it."""
        row = self._row(_SPEC, {"digest": digest})
        if row is None:
            raise NotFound(f"there is no spec {digest}")
        return str(row[0])


@lru_cache(maxsize=256)
def _guarded(names: tuple[str, ...]) -> Update:
    """Law 2 in SQL: only the row that the writer saw takes the values."""
    seen = and_(jobs.c.seq == bindparam("w_seq"), jobs.c.state == bindparam("w_state"), jobs.c.revision == bindparam("w_revision"))  # fmt: skip
    return update(jobs).where(seen).values({name: bindparam("s_" + name) for name in names})


def _staleness(row: JobRow, change: Change) -> StaleWrite | None:
    if change.expect_state is not None and row.state is not change.expect_state:
        return StaleWrite(f"job {row.id} is {row.state}, no longer {change.expect_state}; nothing was changed")
    if change.expect_revision is not None and row.revision != change.expect_revision:
        return StaleWrite(f"job {row.id} is at revision {row.revision}, no longer {change.expect_revision}; nothing was changed")  # fmt: skip
    if change.expect_attempts is not None and row.attempts != change.expect_attempts:
        return StaleWrite(f"job {row.id} is at attempt {row.attempts}, no longer {change.expect_attempts}; nothing was changed")  # fmt: skip
    return None


class JobWrites(JobReads, DiaryWriter):
    """Changes of jobs, inside a transaction.

    It is the only writer while it lasts, so a row that it has read or changed is not read again by its next change.
    """

    _moved: dict[JobId, JobRow]
    _specs_there: Collection[str]
    specs_kept: set[str]

    def next_job_number(self, n: int = 1) -> int:
        """The first of `n` consecutive numbers that nobody else gets.  A rolled-back transaction gives its own back."""
        return self._next("job", n)

    def add_jobs(self, new: Sequence[NewJob], at: Instant) -> list[JobRow]:
        """Write the jobs as queued, in this order, each with its `JobSubmitted`.  An id must be new (HouseFault).

        `at` is when those were submitted that do not say it themselves.
        """
        if not new:
            return []
        digests = {spec: digest_of(spec) for spec in {job.spec for job in new}}
        self._keep_specs({digest: spec for spec, digest in digests.items()})
        first = self._next("job-row", len(new))
        rows, stored = [], []
        for seq, job in enumerate(new, first):
            values = dict(_DEFAULTS)
            for name in _COPIED:
                values[name] = JOB_COLUMNS.plain(name, getattr(job, name))
            when = at if job.submitted_at is None else job.submitted_at
            values.update(seq=seq, spec_digest=digests[job.spec], submitted_at=when)
            changes = {n: v for n, v in values.items() if n not in _DEFAULTS or v != _DEFAULTS[n]}
            self._note(EventKind.JOB_SUBMITTED, when, job_id=job.id, changes=changes)
            stored.append({n: JOB_COLUMNS.stored(n, v) for n, v in values.items()})
            rows.append(JobRow(**JOB_COLUMNS.typed(values)))
        self._write(insert(jobs), stored)
        return rows

    def move(self, change: Change) -> JobRow:
        """One guarded change.  Raises StaleWrite, IllegalTransition or NotFound, and then nothing was changed."""
        (result,) = self.move_many((change,))
        if isinstance(result, StaleWrite):
            raise result
        return result

    def move_many(self, changes: Sequence[Change]) -> list[JobRow | StaleWrite]:
        """Many guarded changes, each on its own: a stale one changes nothing and is told so in its place.

        Changes of one job are taken in order, and the later sees the earlier.  Raises IllegalTransition and NotFound
        before anything is written.
        """
        rows = {c.job_id: self._moved.pop(c.job_id) for c in changes if c.job_id in self._moved}
        rows |= self.jobs_by_id(list({c.job_id for c in changes} - rows.keys()))
        results: list[JobRow | StaleWrite] = []
        groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        notes: list[tuple[Change, dict[str, object]]] = []
        touched: set[JobId] = set()
        for change in changes:
            row = rows.get(change.job_id)
            if row is None:
                raise NotFound(f"there is no job {change.job_id}")
            stale = _staleness(row, change)
            if stale is not None:
                results.append(stale)
                continue
            fresh = _changes(row, change)
            if fresh:
                if row.id in touched:  # two steps of one job: the first must be there before the second
                    self._move_groups(groups)
                    touched.clear()
                touched.add(row.id)
                values = {"s_" + n: JOB_COLUMNS.stored(n, v) for n, v in fresh.items()}
                values.update(w_seq=row.seq, w_state=row.state.value, w_revision=row.revision)
                groups.setdefault(tuple(fresh), []).append(values)
                row = rows[row.id] = replace(row, **JOB_COLUMNS.typed(dict(fresh)))
            notes.append((change, fresh))
            results.append(row)
        self._move_groups(groups)
        for change, fresh in notes:
            self._note(change.kind, change.at, job_id=change.job_id, message=change.message, changes=fresh, data=change.data)  # fmt: skip
        self._moved |= rows  # only now: after an error nothing is taken for known
        return results

    def note(
        self,
        job_id: JobId,
        kind: EventKind,
        at: Instant,
        *,
        message: str = "",
        changes: Mapping[str, object] | None = None,
        data: Mapping[str, object] | None = None,
        expect_state: JobState | None = None,
        expect_revision: int | None = None,
    ) -> JobRow:
        """A line in the diary, with fields changed but no step of the lifecycle.  Raises StaleWrite, NotFound."""
        return self.move(
            Change(
                job_id=job_id,
                event=None,
                kind=kind,
                at=at,
                expect_state=expect_state,
                expect_revision=expect_revision,
                message=message,
                fields=changes or {},
                data=data or {},
            )
        )

    def _move_groups(self, groups: dict[tuple[str, ...], list[dict[str, Any]]]) -> None:
        for names, values in groups.items():
            if self._write(_guarded(names), values) != len(values):
                raise HouseFault(
                    f"a guarded write of {', '.join(names)} met a row that its own transaction did not see"
                )
        groups.clear()

    def _keep_specs(self, texts: Mapping[str, str]) -> None:
        unsure = [digest for digest in texts if digest not in self._specs_there]
        if not unsure:
            return
        known = {row[0] for row in self._rows(_SPECS_KNOWN, {"digests": unsure})}
        self._write(insert(specs), [{"digest": d, "body": clean(texts[d])} for d in unsure if d not in known])
        self.specs_kept.update(unsure)


def _changes(row: JobRow, change: Change) -> dict[str, object]:
    """The plain values that the change sets, state and revision among them; empty where it sets none."""
    unknown = change.fields.keys() - _CHANGEABLE
    if unknown:
        raise HouseFault(f"a change cannot set {', '.join(sorted(unknown))} of a job")
    fresh: dict[str, object] = {n: JOB_COLUMNS.plain(n, v) for n, v in change.fields.items()}
    if change.event is not None:
        if change.expect_state is None:
            raise HouseFault(f"{change.event} of job {row.id} does not say which state its writer saw")
        fresh["state"] = next_state(row.state, change.event).value
    if fresh:
        fresh["revision"] = row.revision + 1
    return fresh
