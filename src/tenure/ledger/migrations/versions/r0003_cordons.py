"""Cards that are out of the pool, by whom and why."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "cordons",
        sa.Column("card", sa.Text(), primary_key=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("move", sa.Boolean(), nullable=False),
        sa.Column("failed", sa.Boolean(), nullable=False),
    )
