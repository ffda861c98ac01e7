"""Attempts: one row a try, guarded by the state its writer saw, each change beside its line in the diary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import Update, bindparam, insert, select, update

from tenure.domain.attempt import AttemptState
from tenure.domain.errors import HouseFault, NotFound, StaleWrite
from tenure.domain.events import EventKind
from tenure.domain.ids import Instant, RunId
from tenure.domain.lifecycle import Outcome

from .columns import Columns
from .diary import DiaryWriter
from .rows import AttemptChange, AttemptRow, NewAttempt
from .schema import attempts, is_live_attempt
from .session import Session

__all__ = ["ATTEMPT_COLUMNS", "AttemptReads", "AttemptWrites"]

ATTEMPT_COLUMNS = Columns(attempts, enums={"state": AttemptState, "outcome": Outcome})
_FIXED = {"run_id", "job_id", "number", "created_at"}
_CHANGEABLE = frozenset(ATTEMPT_COLUMNS.names) - _FIXED
_ORDER = (AttemptState.STARTING, AttemptState.RUNNING, AttemptState.STOPPING, AttemptState.ENDED)
_DEFAULTS: dict[str, Any] = {
    f.name: f.default for f in fields(AttemptRow) if f.default is None or isinstance(f.default, int | str)
} | {"survivors": [], "state": AttemptState.STARTING.value}

_BY_ID = select(attempts).where(attempts.c.run_id == bindparam("id"))
_BY_IDS = select(attempts).where(attempts.c.run_id.in_(bindparam("ids", expanding=True)))
_OF_JOB = select(attempts).where(attempts.c.job_id == bindparam("job")).order_by(attempts.c.number)
_OF_JOBS = select(attempts).where(attempts.c.job_id.in_(bindparam("jobs", expanding=True))).order_by(attempts.c.number)
_LIVE = (
    select(attempts)
    .where(is_live_attempt, attempts.c.run_id > bindparam("after"))
    .order_by(attempts.c.run_id)
    .limit(bindparam("limit"))
)


def _attempt(row: Any) -> AttemptRow:
    return AttemptRow(**ATTEMPT_COLUMNS.read(row))


class AttemptReads(Session):
    """Questions about attempts."""

    def find_attempt(self, run: str) -> AttemptRow | None:
        row = self._row(_BY_ID, {"id": run})
        return None if row is None else _attempt(row)

    def attempt(self, run: str) -> AttemptRow:
        """Raises NotFound."""
        found = self.find_attempt(run)
        if found is None:
            raise NotFound(f"there is no attempt {run}; `tenure show JOB` lists a job's attempts")
        return found

    def attempts(self, job: str) -> list[AttemptRow]:
        """All tries of a job, first to last."""
        return [_attempt(row) for row in self._rows(_OF_JOB, {"job": job})]

    def attempts_of(self, jobs: Sequence[str]) -> dict[str, list[AttemptRow]]:
        """All tries of many jobs at once; a job without any has no entry."""
        found: dict[str, list[AttemptRow]] = {}
        for start in range(0, len(jobs), 500):
            for row in self._rows(_OF_JOBS, {"jobs": jobs[start : start + 500]}):
                attempt = _attempt(row)
                found.setdefault(attempt.job_id, []).append(attempt)
        return found

    def live_attempts(self) -> Iterator[AttemptRow]:
        """Every attempt that has not ended, a few at a time."""
        return map(_attempt, self._stream(_LIVE, key=0, first=""))


@lru_cache(maxsize=256)
def _guarded(names: tuple[str, ...]) -> Update:
    seen = (attempts.c.run_id == bindparam("w_run")) & (attempts.c.state == bindparam("w_state"))
    return update(attempts).where(seen).values({name: bindparam("s_" + name) for name in names})


class AttemptWrites(AttemptReads, DiaryWriter):
    """Changes of attempts, inside a transaction.  As with jobs, what it has read or changed it does not read again."""

    _tried: dict[RunId, AttemptRow]

    def add_attempt(self, new: NewAttempt, at: Instant) -> AttemptRow:
        """Write it as starting, with `AttemptCreated`.  Raises StaleWrite where the run is already there."""
        return self.add_attempts((new,), at)[0]

    def add_attempts(self, new: Sequence[NewAttempt], at: Instant) -> list[AttemptRow]:
        """All or none: see `add_attempt`."""
        if not new:
            return []
        known = self._attempts_by_id([attempt.run_id for attempt in new])
        rows, stored = [], []
        for attempt in new:
            if attempt.run_id in known:
                raise StaleWrite(f"attempt {attempt.run_id} is already there; nothing was changed")
            values: dict[str, Any] = dict(_DEFAULTS)
            for name in ("run_id", "job_id", "number", "backend", "retry_of", "placement", "processes"):
                values[name] = ATTEMPT_COLUMNS.plain(name, getattr(attempt, name))
            values["created_at"] = at
            changes = {n: v for n, v in values.items() if n not in _DEFAULTS or v != _DEFAULTS[n]}
            self._note(
                EventKind.ATTEMPT_CREATED,
                at,
                job_id=attempt.job_id,
                run_id=attempt.run_id,
                message=attempt.message,
                changes=changes,
                data=attempt.data,
            )
            stored.append({n: ATTEMPT_COLUMNS.stored(n, v) for n, v in values.items()})
            rows.append(AttemptRow(**ATTEMPT_COLUMNS.typed(values)))
        self._write(insert(attempts), stored)
        return rows

    def update_attempt(self, change: AttemptChange) -> AttemptRow:
        """One guarded change.  Raises StaleWrite or NotFound, and then nothing was changed."""
        (result,) = self.update_attempts((change,))
        if isinstance(result, StaleWrite):
            raise result
        return result

    def update_attempts(self, changes: Sequence[AttemptChange]) -> list[AttemptRow | StaleWrite]:
        """Many guarded changes, each on its own; of one attempt they are taken in order.  Raises NotFound."""
        rows = {c.run_id: self._tried.pop(c.run_id) for c in changes if c.run_id in self._tried}
        rows |= self._attempts_by_id(list({c.run_id for c in changes} - rows.keys()))
        results: list[AttemptRow | StaleWrite] = []
        groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        touched: set[RunId] = set()
        for change in changes:
            row = rows.get(change.run_id)
            if row is None:
                raise NotFound(f"there is no attempt {change.run_id}")
            fresh = _changes(row, change)
            if isinstance(fresh, StaleWrite):
                results.append(fresh)
                continue
            if fresh:
                if row.run_id in touched:
                    self._update_groups(groups)
                    touched.clear()
                touched.add(row.run_id)
                values = {"s_" + n: ATTEMPT_COLUMNS.stored(n, v) for n, v in fresh.items()}
                values.update(w_run=row.run_id, w_state=row.state.value)
                groups.setdefault(tuple(fresh), []).append(values)
                row = rows[row.run_id] = replace(row, **ATTEMPT_COLUMNS.typed(dict(fresh)))
            self._note(
                change.kind,
                change.at,
                job_id=row.job_id,
                run_id=row.run_id,
                message=change.message,
                changes=fresh,
                data=change.data,
            )
            results.append(row)
        self._update_groups(groups)
        self._tried |= rows
        return results

    def _attempts_by_id(self, ids: Sequence[str]) -> dict[RunId, AttemptRow]:
        found: dict[RunId, AttemptRow] = {}
        for start in range(0, len(ids), 500):
            for row in self._rows(_BY_IDS, {"ids": ids[start : start + 500]}):
                attempt = _attempt(row)
                found[attempt.run_id] = attempt
        return found

    def _update_groups(self, groups: dict[tuple[str, ...], list[dict[str, Any]]]) -> None:
        for names, values in groups.items():
            if self._write(_guarded(names), values) != len(values):
                raise HouseFault(
                    f"a guarded write of {', '.join(names)} met a row that its own transaction did not see"
                )
        groups.clear()


def _changes(row: AttemptRow, change: AttemptChange) -> dict[str, object] | StaleWrite:
    """The plain values that the change sets, or why it comes too late."""
    expected = change.expect_state if isinstance(change.expect_state, tuple) else (change.expect_state,)
    if row.state not in expected:
        return StaleWrite(f"attempt {row.run_id} is {row.state}, not {' or '.join(expected)}; nothing was changed")
    unknown = change.fields.keys() - _CHANGEABLE
    if unknown:
        raise HouseFault(f"a change cannot set {', '.join(sorted(unknown))} of an attempt")
    fresh = {n: ATTEMPT_COLUMNS.plain(n, v) for n, v in change.fields.items()}
    if "state" in fresh:
        after = AttemptState(str(fresh["state"]))
        if after not in _ORDER or _ORDER.index(after) < _ORDER.index(row.state):
            raise HouseFault(f"attempt {row.run_id} is {row.state} and cannot become {after}: attempts only go forward")
    return fresh
