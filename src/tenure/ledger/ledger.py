"""The memory of the house: one writer at a time, readers that never wait, and no decision of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection

from tenure.domain.errors import HouseFault, Unavailable
from tenure.domain.tally import Tally

from .attempts import AttemptReads
from .cordons import CordonReads
from .database import Database, open_database
from .diary import DiaryReads
from .jobs import JobReads
from .migrations import bring_up_to_date
from .requests import RequestReads
from .runs import RunReads
from .transaction import Transaction
from .windows import WindowReads

__all__ = ["Ledger"]

REMEMBERED = 4096  # digests of each kind of content


class Ledger(JobReads, AttemptReads, RunReads, RequestReads, CordonReads, WindowReads, DiaryReads):
    """Reads by any thread at any time; writes inside `transaction`, one after another.

    Nothing is cached: a row is what the database says now.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = threading.Lock()
        self._holder: int | None = None
        self._closed = False
        self._specs_there: set[str] = set()
        self._environments_there: set[str] = set()
        self._counting = threading.Lock()
        self.commits = {True: Tally(), False: Tally()}  # by `durable`: how long they took
        self._listeners: tuple[Callable[[int], None], ...] = ()

    @classmethod
    def open(cls, url: str | Path | URL) -> Ledger:
        """Open, and bring the schema up to date, keeping what is there.

        Raises Unavailable where it cannot be written or was written by a newer tenure; nothing is half-done then.
        """
        database = open_database(url)
        try:
            bring_up_to_date(database)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def close(self) -> None:
        """Close every connection; what comes later is told so (Unavailable).  Waits for a transaction under way."""
        with self._turn:
            self._closed = True
            self._database.close()

    def listen(self, listener: Callable[[int], None]) -> None:
        """Call it with the newest event's id after every commit that wrote events.

        On the writer's thread, with no lock held, so that of two commits the later may be told first.  It must be quick.
        """
        self._listeners = (*self._listeners, listener)

    @contextmanager
    def transaction(self, durable: bool = True) -> Iterator[Transaction]:
        """All of the writes inside, or none of them.

        `durable` True returns once the commit would survive a power loss; False once it would survive the end of this
        process.  Raises Unavailable where the disk or the server refuses, and then nothing was changed.  Transactions
        of one thread do not nest (HouseFault).
        """
        me = threading.get_ident()
        if self._holder == me:
            raise HouseFault("a transaction is already open on this thread; pass it along instead of opening another")
        with self._turn:
            self._holder = me
            try:
                self._check_open()
                connection = self._database.begin(durable=durable)
                tx = Transaction(connection, self._specs_there, self._environments_there)
                try:
                    yield tx
                    began = time.perf_counter()
                    tx.flush()
                    newest = tx.newest() if tx.wrote_events and self._listeners else 0
                    connection.commit()
                except BaseException:
                    self._roll_back(connection)
                    raise
                ticket = self._database.committed()
                _remember(self._specs_there, tx.specs_kept)
                _remember(self._environments_there, tx.environments_kept)
            finally:
                self._holder = None
        if durable:
            self._database.settle(ticket)
        with self._counting:
            self.commits[durable].observe(time.perf_counter() - began)
        if tx.wrote_events:
            for listener in self._listeners:
                listener(newest)

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.rollback()
        except Exception:  # the connection is lost, and what it had not committed with it
            self._database.drop_writer()

    def _connected(self) -> AbstractContextManager[Connection]:
        self._check_open()
        return self._database.reader.connect()

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the ledger has been closed: the platform is stopping")


def _remember(there: set[str], kept: set[str]) -> None:
    """Only after their commit.  A bounded memory of digests: it saves the commonest submit a question."""
    if len(there) > REMEMBERED:
        there.clear()
    there |= kept
