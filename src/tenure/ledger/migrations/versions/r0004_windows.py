"""Claims of whole cards, for a time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "windows",
        sa.Column("seq", _KEY, primary_key=True, autoincrement=False),
        sa.Column("id", sa.Text(), nullable=False, unique=True),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("card", "owner", "state", "reason", "message")),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("length_us", sa.BigInteger(), nullable=False),
        sa.Column("including_resident", sa.Boolean(), nullable=False),
        sa.Column("lease_us", sa.BigInteger(), nullable=True),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=True) for name in ("begin_at", "opened_at", "ends_at", "ended_at")),
    )
    alive, active = sa.text("state <> 'ended'"), sa.text("state = 'active'")
    op.create_index("windows_live", "windows", ["seq"], sqlite_where=alive, postgresql_where=alive)
    op.create_index(
        "windows_one_active", "windows", ["card"], unique=True, sqlite_where=active, postgresql_where=active
    )
