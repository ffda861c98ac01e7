"""The diary: append-only, read by cursor.

An event with a run id speaks of that attempt and its `changes` are fields of the attempt; without one, `changes` are
fields of the job.  Lines are gathered during a transaction and written with it, in their order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Executable, bindparam, func, insert, select, update

from tenure.domain.errors import HouseFault
from tenure.domain.events import Event, EventKind
from tenure.domain.ids import Instant, JobId, RunId

from .columns import clean, from_json, to_json
from .schema import events, sequences
from .session import Session

__all__ = ["DiaryReads", "DiaryWriter"]

_LAST = select(func.coalesce(func.max(events.c.id), 0))
_NEXT = (
    update(sequences)
    .where(sequences.c.name == bindparam("which"))
    .values(value=sequences.c.value + bindparam("n"))
    .returning(sequences.c.value)
)


def _event(row: Any) -> Event:
    id_, at, kind, job_id, run_id, message, changes, data = row
    return Event(
        id=id_,
        at=at,
        kind=EventKind(kind),
        job_id=job_id,
        run_id=run_id,
        message=message,
        changes=from_json(changes),
        data=from_json(data),
    )


class DiaryReads(Session):
    """Questions about what happened."""

    def events(
        self,
        *,
        after: int = 0,
        job_id: str | None = None,
        kinds: Collection[EventKind] | None = None,
        limit: int = 500,
        newest: bool = False,
    ) -> list[Event]:
        """Events with an id above `after`, oldest first.  `newest` gives the last `limit` of them, newest first."""
        statement = select(events).where(events.c.id > after)
        if job_id is not None:
            statement = statement.where(events.c.job_id == job_id)
        if kinds is not None:
            statement = statement.where(events.c.kind.in_(sorted(kind.value for kind in kinds)))
        order = events.c.id.desc() if newest else events.c.id
        return [_event(row) for row in self._rows(statement.order_by(order).limit(limit))]

    def last_event_id(self) -> int:
        """The cursor of now: 0 in an empty diary."""
        row = self._row(_LAST)
        return int(row[0]) if row is not None else 0


class DiaryWriter(Session):
    """What the other nouns write with, inside a transaction."""

    _lines: list[dict[str, Any]]

    @abstractmethod
    def _write(self, statement: Executable, values: Sequence[Mapping[str, Any]]) -> int:
        """Run once for each of `values`; the number of rows it matched."""

    def event(self, event: Event) -> None:
        """A line of the house, or about a job without a change of its row.  Its id is given on writing."""
        if event.changes:
            raise HouseFault(f"{event.kind} names changes; rows change through move, note and update_attempt alone")
        self._note(event.kind, event.at, job_id=event.job_id, run_id=event.run_id, message=event.message, data=event.data)  # fmt: skip

    def _note(
        self,
        kind: EventKind,
        at: Instant,
        *,
        job_id: JobId | None = None,
        run_id: RunId | None = None,
        message: str = "",
        changes: Mapping[str, object] | None = None,
        data: Mapping[str, object] | None = None,
    ) -> None:
        self._lines.append(
            {
                "at": at,
                "kind": str(kind),
                "job_id": job_id,
                "run_id": run_id,
                "message": clean(message),
                "changes": to_json(changes) if changes else "{}",
                "data": to_json(data) if data else "{}",
            }
        )

    def _write_lines(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            self._write(insert(events), lines)

    def _next(self, which: str, n: int) -> int:
        """The first of `n` numbers of a sequence."""
        if n < 1:
            raise HouseFault(f"a sequence gives at least one number, not {n}")
        row = self._row(_NEXT, {"which": which, "n": n})
        if row is None:
            raise HouseFault(f"there is no sequence {which}")
        return int(row[0]) - n + 1
