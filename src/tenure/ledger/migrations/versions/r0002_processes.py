"""An attempt says how many processes it has; jobs are counted by outcome, and runs found by job, from an index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Nobody wrote it down before: unknown stays unknown.
    op.add_column("attempts", sa.Column("processes", sa.BigInteger(), nullable=True))
    op.create_index("jobs_by_outcome", "jobs", ["state", "outcome"])
    op.create_index("runs_by_job", "runs", ["job_id", "opened_at"])
