"""The tables, as the code of today sees them.  `migrations/` is how a file gets here; a test holds the two equal.

Types are the few that SQLite and PostgreSQL share: text, integers, booleans.  Instants are microseconds in a
BigInteger, and anything with a shape of its own is JSON in a Text column (marked `info={"json": True}`), because no
query looks inside it.  `jobs.seq` is the order of submission and the cursor of every page; `events.id` is the cursor of
the diary.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, ColumnElement, Index, Integer, MetaData, Table, Text, literal_column

__all__ = [
    "attempts",
    "cordons",
    "environments",
    "events",
    "idempotency",
    "jobs",
    "metadata",
    "runs",
    "sequences",
    "specs",
    "windows",
]

metadata = MetaData()

_JSON = {"json": True}
# SQLite numbers rows by itself only where the key is spelled INTEGER; both spellings hold 64 bits there.
_KEY = BigInteger().with_variant(Integer(), "sqlite")


def _json(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, Text, nullable=nullable, info=_JSON)


def _text(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, Text, nullable=nullable)


def _int(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, BigInteger, nullable=nullable)


jobs = Table(
    "jobs",
    metadata,
    Column("seq", _KEY, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False, unique=True),
    _text("array_id", nullable=True),
    _int("array_index", nullable=True),
    _int("array_limit", nullable=True),
    _text("name"),
    _text("project"),
    _text("namespace"),
    _text("owner"),
    _text("state"),
    Column("held", Boolean, nullable=False),
    _text("reason"),
    _text("message"),
    _text("outcome", nullable=True),
    _int("exit_code", nullable=True),
    _int("signal", nullable=True),
    _text("queue"),
    _text("cluster_queue", nullable=True),
    _text("priority_class", nullable=True),
    _int("priority"),
    _text("spec_digest"),
    _text("env_digest", nullable=True),
    _json("labels"),
    _json("fingerprint"),
    _int("submitted_at"),
    _int("admitted_at", nullable=True),
    _int("started_at", nullable=True),
    _int("ended_at", nullable=True),
    _int("attempts"),
    _text("run_id", nullable=True),
    _int("revision"),
    _int("not_before", nullable=True),
    _int("launch_failures"),
    _int("retries_used"),
    _json("reservation", nullable=True),
    _text("retry_of", nullable=True),
)

# The literal stands in the query as well, or SQLite cannot see that the partial index answers it.
is_live_job: ColumnElement[bool] = literal_column("jobs.state <> 'ended'")
is_live_attempt: ColumnElement[bool] = literal_column("attempts.state <> 'ended'")

Index("jobs_live", jobs.c.seq, sqlite_where=literal_column("state <> 'ended'"), postgresql_where=literal_column("state <> 'ended'"))  # fmt: skip
Index("jobs_by_state", jobs.c.state, jobs.c.seq)
Index("jobs_by_outcome", jobs.c.state, jobs.c.outcome)
Index("jobs_by_project", jobs.c.project, jobs.c.seq)
Index("jobs_by_name", jobs.c.name, jobs.c.seq)
Index("jobs_by_array", jobs.c.array_id, jobs.c.array_index)

attempts = Table(
    "attempts",
    metadata,
    Column("run_id", Text, primary_key=True),
    _text("job_id"),
    _int("number"),
    _text("state"),
    _text("outcome", nullable=True),
    _int("exit_code", nullable=True),
    _int("signal", nullable=True),
    _text("reason"),
    _text("message"),
    _int("created_at"),
    _int("started_at", nullable=True),
    _int("ended_at", nullable=True),
    _text("evicted_reason", nullable=True),
    _text("evicted_message", nullable=True),
    _text("evicted_by", nullable=True),
    _int("evicted_at", nullable=True),
    _text("retry_of", nullable=True),
    _text("backend"),
    _json("placement", nullable=True),
    _int("failed_rank", nullable=True),
    _json("survivors"),
    _int("processes", nullable=True),
)
Index("attempts_by_job", attempts.c.job_id, attempts.c.number, unique=True)
Index("attempts_live", attempts.c.run_id, sqlite_where=literal_column("state <> 'ended'"), postgresql_where=literal_column("state <> 'ended'"))  # fmt: skip

runs = Table(
    "runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    _text("job_id", nullable=True),
    _text("name"),
    _text("project"),
    _text("run_dir"),
    _text("outcome", nullable=True),
    _int("opened_at"),
    _int("closed_at", nullable=True),
    _int("seen_at"),
    _text("retry_of", nullable=True),
    _int("read_to"),
    _json("summary"),
)
Index("runs_newest", runs.c.opened_at, runs.c.run_id)
Index("runs_by_project", runs.c.project, runs.c.opened_at)
Index("runs_by_job", runs.c.job_id, runs.c.opened_at)
Index("runs_open", runs.c.seen_at, sqlite_where=literal_column("outcome IS NULL"), postgresql_where=literal_column("outcome IS NULL"))  # fmt: skip

events = Table(
    "events",
    metadata,
    Column("id", _KEY, primary_key=True, autoincrement=True),
    _int("at"),
    _text("kind"),
    _text("job_id", nullable=True),
    _text("run_id", nullable=True),
    _text("message"),
    _json("changes"),
    _json("data"),
    sqlite_autoincrement=True,  # an id that was seen once is never given to another event
)
Index("events_by_job", events.c.job_id, events.c.id)

# Content by digest: what many jobs share is written once and never changes.
specs = Table("specs", metadata, Column("digest", Text, primary_key=True), _json("body"))
environments = Table("environments", metadata, Column("digest", Text, primary_key=True), _json("body"), _int("at"))

idempotency = Table(
    "idempotency",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    _text("request_hash"),
    _text("answer"),
    _int("at"),
)
Index("idempotency_by_age", idempotency.c.at)

sequences = Table("sequences", metadata, Column("name", Text, primary_key=True), _int("value"))

# Cards that are out of the pool: a row a card, gone when it is back.
cordons = Table(
    "cordons",
    metadata,
    Column("card", Text, primary_key=True),
    _int("at"),
    _text("by"),
    _text("reason"),
    Column("move", Boolean, nullable=False),
    Column("failed", Boolean, nullable=False),
)

# Claims of whole cards.  At most one of a card is active, whoever writes.
windows = Table(
    "windows",
    metadata,
    Column("seq", _KEY, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False, unique=True),
    _text("card"),
    _text("owner"),
    _text("state"),
    _text("reason"),
    _text("message"),
    _text("job_id", nullable=True),
    _int("length_us"),
    Column("including_resident", Boolean, nullable=False),
    _int("lease_us", nullable=True),
    _int("claimed_at"),
    _int("begin_at", nullable=True),
    _int("opened_at", nullable=True),
    _int("ends_at", nullable=True),
    _int("ended_at", nullable=True),
)
is_live_window: ColumnElement[bool] = literal_column("windows.state <> 'ended'")
Index("windows_live", windows.c.seq, sqlite_where=literal_column("state <> 'ended'"), postgresql_where=literal_column("state <> 'ended'"))  # fmt: skip
Index("windows_one_active", windows.c.card, unique=True, sqlite_where=literal_column("state = 'active'"), postgresql_where=literal_column("state = 'active'"))  # fmt: skip
