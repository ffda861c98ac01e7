"""Runs: what was read of the records, for lists and comparisons.  The record in the run directory is the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, bindparam, or_, select, text

from tenure.domain.errors import NotFound
from tenure.domain.ids import Instant
from tenure.domain.lifecycle import Outcome

from .columns import Columns
from .diary import DiaryWriter
from .rows import Page, RunRow, place_in
from .schema import runs
from .session import Session

__all__ = ["RunFilter", "RunReads", "RunWrites"]

RUN_COLUMNS = Columns(runs, enums={"outcome": Outcome})
_BY_ID = select(runs).where(runs.c.run_id == bindparam("id"))
_OPEN = (
    select(runs)
    .where(runs.c.outcome.is_(None), runs.c.seen_at < bindparam("before"))
    .order_by(runs.c.seen_at)
    .limit(bindparam("limit"))
)
# Both databases understand this form; their own constructs for it differ.
_PUT = text(
    f"INSERT INTO runs ({', '.join(RUN_COLUMNS.names)}) VALUES ({', '.join(':' + n for n in RUN_COLUMNS.names)}) "
    f"ON CONFLICT (run_id) DO UPDATE SET {', '.join(f'{n} = excluded.{n}' for n in RUN_COLUMNS.names if n != 'run_id')}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs a page shows; every part that is set must hold.  `open` True: those that have not closed."""

    job_id: str | None = None
    project: str | None = None
    name: str | None = None
    outcome: Outcome | None = None
    open: bool | None = None


def _run(row: Any) -> RunRow:
    return RunRow(**RUN_COLUMNS.read(row))


class RunReads(Session):
    """Questions about runs."""

    def find_run(self, run: str) -> RunRow | None:
        row = self._row(_BY_ID, {"id": run})
        return None if row is None else _run(row)

    def run(self, run: str) -> RunRow:
        """Raises NotFound."""
        found = self.find_run(run)
        if found is None:
            raise NotFound(f"there is no run {run}; `tenure runs ls` lists the runs there are")
        return found

    def runs(self, which: RunFilter = RunFilter(), *, limit: int = 100, cursor: str | None = None) -> Page[RunRow]:
        """Newest first.  Raises InvalidRequest for a cursor that no page gave out."""
        statement = select(runs)
        for column in ("job_id", "project", "name", "outcome"):
            value = getattr(which, column)
            if value is not None:
                statement = statement.where(runs.c[column] == str(value))
        if which.open is not None:
            statement = statement.where(runs.c.outcome.is_(None) if which.open else runs.c.outcome.is_not(None))
        if cursor is not None:
            opened_at, sep, last = cursor.partition(":")
            opened = place_in(cursor, opened_at if sep else "")
            same = and_(runs.c.opened_at == opened, runs.c.run_id < last)
            statement = statement.where(or_(runs.c.opened_at < opened, same))
        statement = statement.order_by(runs.c.opened_at.desc(), runs.c.run_id.desc()).limit(limit + 1)
        rows = [_run(row) for row in self._rows(statement)]
        more = f"{rows[limit - 1].opened_at}:{rows[limit - 1].run_id}" if len(rows) > limit else None
        return Page(items=tuple(rows[:limit]), next=more)

    def open_runs(self, *, seen_before: Instant, limit: int = 500) -> list[RunRow]:
        """Runs without an outcome that were last seen before then, the quietest first."""
        return [_run(row) for row in self._rows(_OPEN, {"before": seen_before, "limit": limit})]


class RunWrites(RunReads, DiaryWriter):
    """What ingest writes, inside a transaction."""

    def put_run(self, run: RunRow) -> None:
        """Write the run as it was read now, in place of what was read before."""
        self.put_runs((run,))

    def put_runs(self, read: Sequence[RunRow]) -> None:
        """See `put_run`; of one run that is there twice, the later stays."""
        self._write(
            _PUT,
            [{n: RUN_COLUMNS.written(n, getattr(run, n)) for n in RUN_COLUMNS.names} for run in read],
        )
