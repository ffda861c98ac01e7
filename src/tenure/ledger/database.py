"""The two databases, and what differs between them: how a write begins, when it is on disk, and what errors mean.

SQLite keeps a write-ahead log: readers never wait for the writer.  A durable commit waits for that log to be on disk
*after* it has let the next writer in, so that one flush serves every writer who came meanwhile (the work of
`synchronous=FULL`, shared).  PostgreSQL does the same by itself.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, QueuePool, create_engine, event, make_url
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError, DataError, InterfaceError

from tenure.domain.errors import HouseFault, InvalidRequest, TenureError, Unavailable

__all__ = ["Database", "open_database"]

_BUSY_S = 10.0  # how long to wait for another process that writes the same file
_CHECKPOINT_EVERY = 100  # commits; small enough that the log stays near 4 MB
_LOG_PAGES = 8000  # where a commit moves the log itself, should the checkpoints not keep up
_ONE_WRITER = 0x7E0CE  # PostgreSQL's advisory lock that makes writers of all processes take turns


class Database(ABC):
    """One connection to write on, many to read on.  Errors of either leave as errors of the house."""

    def __init__(self, where: str, writer: Engine, reader: Engine) -> None:
        self.where, self.writer, self.reader = where, writer, reader
        for engine in (writer, reader):
            event.listen(engine, "handle_error", self._translate, retval=True)
        self._open: Connection | None = None

    def begin(self, *, durable: bool) -> Connection:
        """A write transaction on the one writing connection, which is replaced if it was lost meanwhile."""
        kept = self._open
        if kept is not None:
            try:
                self._begin(kept, durable)
                return kept
            except BaseException:
                lost = kept.invalidated
                self.drop_writer()
                if not lost:
                    raise
        fresh = self._open = self.writer.connect()
        try:
            self._begin(fresh, durable)
        except BaseException:
            self.drop_writer()
            raise
        return fresh

    def drop_writer(self) -> None:
        """Forget the writing connection; whatever it had not committed is gone."""
        connection, self._open = self._open, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
        self.reader.dispose()
        self.writer.dispose()

    @abstractmethod
    def _begin(self, connection: Connection, durable: bool) -> None: ...

    def committed(self) -> int:
        """Called by the writer after each commit, before the next may begin; a ticket for `settle`."""
        return 0

    def settle(self, ticket: int) -> None:
        """Return once the commit with that ticket is on disk.  Any number of threads at once."""
        return

    @abstractmethod
    def _meaning(self, error: BaseException) -> str | None:
        """What to tell people about an error that may pass; None for an error that is a bug."""

    def _translate(self, context: ExceptionContext) -> TenureError | None:
        error = context.original_exception
        if context.is_pre_ping or isinstance(error, TenureError):
            return None  # a dead connection in the pool is replaced; nobody need hear of it
        if isinstance(context.sqlalchemy_exception, DataError) or isinstance(error, UnicodeError):
            return InvalidRequest(f"the ledger cannot hold this value: {error}")
        meaning = self._meaning(error)
        if meaning is None and (context.is_disconnect or isinstance(context.sqlalchemy_exception, InterfaceError)):
            meaning = "the connection to the database was lost"
        if meaning is None:
            return HouseFault(f"the ledger refused what it was told: {str(error).strip()}")
        return Unavailable(f"the ledger at {self.where} is not usable now: {meaning}")


class _Flush:
    """One flush for many commits: whoever waits behind a flush that already covers him does not flush again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._opened()
        self._turn = threading.Lock()
        self.written = 0
        self._flushed = 0

    def upto(self, ticket: int) -> None:
        with self._turn:
            if self._flushed < ticket:
                seen = self.written  # commits before this line are in the file; later ones need another flush
                # Every connection was lost at once, and SQLite has begun a new log.
                if os.fstat(self._file).st_nlink == 0:
                    gone, self._file = self._file, self._opened()
                    os.close(gone)
                getattr(os, "fdatasync", os.fsync)(self._file)
                self._flushed = seen

    def _opened(self) -> int:
        """The log of now.  Its name is on disk as well, which SQLite sees to only when it flushes a new log by itself."""
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return file

    def close(self) -> None:
        os.close(self._file)


class _Checkpoints(threading.Thread):
    """Moves the log into the file beside the writers, who would otherwise stand still for it now and then."""

    def __init__(self, writer: Engine) -> None:
        super().__init__(name="ledger-checkpoints", daemon=True)
        self._writer = writer
        self._due = threading.Event()
        self._over = False

    def ask(self) -> None:
        self._due.set()

    def finish(self) -> None:
        self._over = True
        self._due.set()
        self.join()

    def run(self) -> None:
        while True:
            self._due.wait()
            self._due.clear()
            if self._over:
                return
            # What fails here (a full disk) fails again in a commit, where somebody hears of it.
            with suppress(TenureError, sqlite3.Error), closing(self._writer.raw_connection()) as connection:
                connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")


class SqliteDatabase(Database):
    """A file.  Its log is flushed by `settle`, or by SQLite itself where the file system cannot keep a log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._flush: _Flush | None = None
        self._checkpoints: _Checkpoints | None = None
        url = URL.create("sqlite+pysqlite", database=str(path))
        options: dict[str, Any] = {"timeout": _BUSY_S, "isolation_level": None, "check_same_thread": False, "cached_statements": 256}  # fmt: skip
        writer = create_engine(url, poolclass=NullPool, connect_args=options)
        reader = create_engine(
            url,
            poolclass=QueuePool,
            pool_size=4,
            max_overflow=60,
            pool_reset_on_return=None,
            isolation_level="AUTOCOMMIT",
            connect_args=options,
        )
        super().__init__(str(path), writer, reader)
        event.listen(writer, "connect", self._prepare_writer)
        event.listen(reader, "connect", self._prepare_reader)
        event.listen(writer, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # private from its first instant
        except OSError as error:
            raise Unavailable(
                f"cannot open the ledger {path} for writing: {error.strerror}; it has to be a file that this user can write, "
                "where TENURE_LEDGER_URL or else TENURE_HOME says"
            ) from error

    def _prepare_writer(self, connection: Any, _record: object) -> None:
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("PRAGMA cache_size=-8000")
        connection.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
        self._logged = mode == "wal"

    def _prepare_reader(self, connection: Any, _record: object) -> None:
        connection.execute("PRAGMA query_only=ON")
        connection.execute("PRAGMA temp_store=MEMORY")

    def _begin(self, connection: Connection, durable: bool) -> None:
        connection.begin()

    def committed(self) -> int:
        if not self._logged:
            return 0
        if self._flush is None:
            self._flush = _Flush(Path(f"{self._path}-wal"))
        self._flush.written += 1
        if self._flush.written % _CHECKPOINT_EVERY == 0:
            if self._checkpoints is None:
                self._checkpoints = _Checkpoints(self.writer)
                self._checkpoints.start()
            self._checkpoints.ask()
        return self._flush.written

    def settle(self, ticket: int) -> None:
        if self._flush is not None:
            try:
                self._flush.upto(ticket)
            except OSError as error:
                raise Unavailable(
                    f"the ledger at {self.where} could not be flushed ({error.strerror}): the change was made, and a power loss may undo it"
                ) from error

    def close(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.finish()
            self._checkpoints = None
        super().close()
        if self._flush is not None:
            self._flush.close()
            self._flush = None

    def _meaning(self, error: BaseException) -> str | None:
        said = str(error)
        for part, meaning in _SQLITE_SAYS:
            if part in said:
                return meaning
        return None


_SQLITE_SAYS = (
    ("disk is full", "the disk is full; nothing was changed, free some space and try again"),
    ("disk I/O error", "the disk refused a read or a write; nothing was changed"),
    ("readonly", "the file or its directory is read-only; nothing was changed"),
    ("unable to open", "the file or its directory cannot be opened; nothing was changed"),
    ("database is locked", f"another process has been writing it for {_BUSY_S:.0f} s; nothing was changed"),
    ("malformed", "the file is damaged; restore it from a copy"),
    ("not a database", "the file is not an SQLite database; move it away or restore it from a copy"),
    ("closed database", "it has been closed"),
)


class PostgresDatabase(Database):
    """A server.  A writer holds an advisory lock, so that event ids appear in the order in which they are committed."""

    def __init__(self, url: URL) -> None:
        writer = create_engine(url, poolclass=NullPool)
        reader = create_engine(
            url,
            poolclass=QueuePool,
            pool_size=4,
            max_overflow=16,
            pool_reset_on_return=None,
            pool_pre_ping=True,
            isolation_level="AUTOCOMMIT",
        )
        super().__init__(url.render_as_string(hide_password=True), writer, reader)

    def _begin(self, connection: Connection, durable: bool) -> None:
        connection.begin()
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ONE_WRITER})")
        if not durable:
            connection.exec_driver_sql("SET LOCAL synchronous_commit TO off")

    def _meaning(self, error: BaseException) -> str | None:
        state = getattr(error, "sqlstate", None) or ""
        if state.startswith(("08", "53", "57")):  # connection, resources (a full disk too), shutting down
            return str(error).strip()
        if state == "25006":
            return "the server is read-only now"
        return str(error).strip() if not state and type(error).__name__ == "OperationalError" else None


_TAKEN = "TENURE_LEDGER_URL takes sqlite:////PATH/TO/FILE and postgresql://USER@HOST/DATABASE"


def open_database(url: str | Path | URL) -> Database:
    """A database by URL (`sqlite:///…`, `postgresql+psycopg://…`) or by the path of an SQLite file.

    Raises InvalidRequest for a URL of another kind, Unavailable where the file cannot be written or the driver is missing.
    """
    if isinstance(url, Path):
        return SqliteDatabase(url.absolute())
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # whose text may be a piece of a password
        raise InvalidRequest("this is not the URL of a database; " + _TAKEN) from None
    kind = parsed.get_backend_name()
    if kind == "sqlite" and parsed.database and parsed.database != ":memory:":
        return SqliteDatabase(Path(parsed.database).absolute())
    if kind == "postgresql":
        try:
            return PostgresDatabase(parsed.set(drivername="postgresql+psycopg"))
        except ModuleNotFoundError as error:
            raise Unavailable(
                f"a ledger on PostgreSQL needs the module {error.name}, which is not installed: pip install 'tenure[postgres]'",
                code="MissingDriver",
            ) from error
    raise InvalidRequest(f"no ledger can be kept at {parsed.render_as_string(hide_password=True)}; {_TAKEN}")
