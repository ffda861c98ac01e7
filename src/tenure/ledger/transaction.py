"""A write transaction: every noun's writes on the one writing connection, committed whole or not at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sqlalchemy import Connection, Executable

from tenure.domain.events import Event, EventKind
from tenure.domain.ids import JobId, RunId

from .attempts import AttemptWrites
from .cordons import CordonWrites
from .diary import DiaryReads
from .jobs import JobWrites
from .requests import RequestWrites
from .rows import AttemptRow, JobRow
from .runs import RunWrites
from .windows import WindowWrites

__all__ = ["Transaction"]


class Transaction(JobWrites, AttemptWrites, RunWrites, RequestWrites, CordonWrites, WindowWrites, DiaryReads):
    """Made by `Ledger.transaction`.  Its reads see its own writes."""

    def __init__(
        self, connection: Connection, specs_there: Collection[str] = (), environments_there: Collection[str] = ()
    ) -> None:
        """`…_there` are digests of contents that are known to be committed: content never changes or goes."""
        self._on = connection
        self._specs_there, self._environments_there = specs_there, environments_there
        self.specs_kept: set[str] = set()
        self.environments_kept: set[str] = set()
        self._answers: list[dict[str, Any]] = []
        self._lines: list[dict[str, Any]] = []
        self._moved: dict[JobId, JobRow] = {}
        self._tried: dict[RunId, AttemptRow] = {}
        self.wrote_events = False

    def _connected(self) -> AbstractContextManager[Connection]:
        return nullcontext(self._on)

    def _write(self, statement: Executable, values: Sequence[Mapping[str, Any]]) -> int:
        if not values:
            return 0
        return self._on.execute(statement, values).rowcount

    def events(
        self,
        *,
        after: int = 0,
        job_id: str | None = None,
        kinds: Collection[EventKind] | None = None,
        limit: int = 500,
        newest: bool = False,
    ) -> list[Event]:
        self.flush()
        return super().events(after=after, job_id=job_id, kinds=kinds, limit=limit, newest=newest)

    def last_event_id(self) -> int:
        self.flush()
        return super().last_event_id()

    def flush(self) -> None:
        """Write what was gathered so far, lines and answers; the commit does it by itself."""
        self._write_answers()
        self.wrote_events = self.wrote_events or bool(self._lines)
        self._write_lines()

    def newest(self) -> int:
        """The id of the newest event, asked on this connection: as cheap as it can be, since every commit asks."""
        return int(self._on.exec_driver_sql("SELECT max(id) FROM events").scalar_one() or 0)
