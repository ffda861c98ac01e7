"""The first ledger: jobs, attempts, runs, the diary, contents by digest, answers by key, sequences."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _text(*names: str, nullable: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Text(), nullable=nullable) for name in names]


def _int(*names: str, nullable: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.BigInteger(), nullable=nullable) for name in names]


def upgrade() -> None:
    live: dict[str, Any] = {
        "sqlite_where": sa.text("state <> 'ended'"),
        "postgresql_where": sa.text("state <> 'ended'"),
    }
    unclosed: dict[str, Any] = {
        "sqlite_where": sa.text("outcome IS NULL"),
        "postgresql_where": sa.text("outcome IS NULL"),
    }

    op.create_table(
        "jobs",
        sa.Column("seq", _KEY, primary_key=True, autoincrement=False),
        sa.Column("id", sa.Text(), nullable=False, unique=True),
        *_text("array_id", nullable=True),
        *_int("array_index", "array_limit", nullable=True),
        *_text("name", "project", "namespace", "owner", "state"),
        sa.Column("held", sa.Boolean(), nullable=False),
        *_text("reason", "message"),
        *_text("outcome", nullable=True),
        *_int("exit_code", "signal", nullable=True),
        *_text("queue"),
        *_text("cluster_queue", "priority_class", nullable=True),
        *_int("priority"),
        *_text("spec_digest"),
        *_text("env_digest", nullable=True),
        *_text("labels", "fingerprint"),
        *_int("submitted_at"),
        *_int("admitted_at", "started_at", "ended_at", nullable=True),
        *_int("attempts"),
        *_text("run_id", nullable=True),
        *_int("revision"),
        *_int("not_before", nullable=True),
        *_int("launch_failures", "retries_used"),
        *_text("reservation", "retry_of", nullable=True),
    )
    op.create_index("jobs_live", "jobs", ["seq"], **live)
    op.create_index("jobs_by_state", "jobs", ["state", "seq"])
    op.create_index("jobs_by_project", "jobs", ["project", "seq"])
    op.create_index("jobs_by_name", "jobs", ["name", "seq"])
    op.create_index("jobs_by_array", "jobs", ["array_id", "array_index"])

    op.create_table(
        "attempts",
        sa.Column("run_id", sa.Text(), primary_key=True),
        *_text("job_id"),
        *_int("number"),
        *_text("state"),
        *_text("outcome", nullable=True),
        *_int("exit_code", "signal", nullable=True),
        *_text("reason", "message"),
        *_int("created_at"),
        *_int("started_at", "ended_at", nullable=True),
        *_text("evicted_reason", "evicted_message", "evicted_by", nullable=True),
        *_int("evicted_at", nullable=True),
        *_text("retry_of", nullable=True),
        *_text("backend"),
        *_text("placement", nullable=True),
        *_int("failed_rank", nullable=True),
        *_text("survivors"),
    )
    op.create_index("attempts_by_job", "attempts", ["job_id", "number"], unique=True)
    op.create_index("attempts_live", "attempts", ["run_id"], **live)

    op.create_table(
        "runs",
        sa.Column("run_id", sa.Text(), primary_key=True),
        *_text("job_id", nullable=True),
        *_text("name", "project", "run_dir"),
        *_text("outcome", nullable=True),
        *_int("opened_at"),
        *_int("closed_at", nullable=True),
        *_int("seen_at"),
        *_text("retry_of", nullable=True),
        *_int("read_to"),
        *_text("summary"),
    )
    op.create_index("runs_newest", "runs", ["opened_at", "run_id"])
    op.create_index("runs_by_project", "runs", ["project", "opened_at"])
    op.create_index("runs_open", "runs", ["seen_at"], **unclosed)

    op.create_table(
        "events",
        sa.Column("id", _KEY, primary_key=True, autoincrement=True),
        *_int("at"),
        *_text("kind"),
        *_text("job_id", "run_id", nullable=True),
        *_text("message", "changes", "data"),
        sqlite_autoincrement=True,
    )
    op.create_index("events_by_job", "events", ["job_id", "id"])

    op.create_table("specs", sa.Column("digest", sa.Text(), primary_key=True), *_text("body"))
    op.create_table("environments", sa.Column("digest", sa.Text(), primary_key=True), *_text("body"), *_int("at"))
    op.create_table(
        "idempotency",
        sa.Column("scope", sa.Text(), primary_key=True),
        sa.Column("key", sa.Text(), primary_key=True),
        *_text("request_hash", "answer"),
        *_int("at"),
    )
    op.create_index("idempotency_by_age", "idempotency", ["at"])

    sequences = op.create_table("sequences", sa.Column("name", sa.Text(), primary_key=True), *_int("value"))
    op.bulk_insert(sequences, [{"name": "job", "value": 0}, {"name": "job-row", "value": 0}])
