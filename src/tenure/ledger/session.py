"""Where statements run: the seam between the nouns (jobs, attempts, runs, events) and a connection.

A reader borrows a connection for each statement and sees the latest commit; a transaction has one connection to itself
and sees its own writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, Executable, Row

__all__ = ["Session"]

_AT_ONCE = 250


class Session(ABC):
    """Statements in, rows out.  Errors of the database arrive as errors of the house (see `database`)."""

    @abstractmethod
    def _connected(self) -> AbstractContextManager[Connection]:
        """A connection to run one statement on."""

    def _rows(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Sequence[Row[*tuple[Any, ...]]]:
        with self._connected() as connection:
            return connection.execute(statement, values).fetchall()

    def _row(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Row[*tuple[Any, ...]] | None:
        with self._connected() as connection:
            return connection.execute(statement, values).first()

    def _stream(self, statement: Executable, *, key: int, first: Any) -> Iterator[Row[*tuple[Any, ...]]]:
        """Rows in the order of their column number `key`, a few at a time; between them no connection is held.

        The statement orders by that column, and takes `after` (begin with `first`, below every value) and `limit`.
        """
        after = first
        while True:
            rows = self._rows(statement, {"after": after, "limit": _AT_ONCE})
            yield from rows
            if len(rows) < _AT_ONCE:
                return
            after = rows[-1][key]
