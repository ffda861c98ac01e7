"""How a ledger of any age becomes one of today, keeping what is in it.

A ledger that is up to date is recognised with one query, and a new one is made as `schema` says.  Alembic is imported
only for an old one: it is twelve megabytes of the daemon and a third of a second.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Column, Connection, MetaData, String, Table, insert, inspect, text

from tenure.domain.errors import Unavailable
from tenure.ledger.schema import metadata, sequences

if TYPE_CHECKING:
    from alembic.config import Config

    from tenure.ledger.database import Database

__all__ = ["HEAD", "REVISIONS", "bring_up_to_date", "upgrade"]

REVISIONS = ("0001", "0002", "0003", "0004")
"""Every schema there has been, oldest first."""

HEAD = REVISIONS[-1]

_version = Table(
    "alembic_version", MetaData(), Column("version_num", String(32), primary_key=True)
)  # as Alembic makes it


def revision_of(connection: Connection) -> str | None:
    """The revision that is written there; None where there is no ledger yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def bring_up_to_date(database: Database) -> None:
    """One look, and what is needed in one transaction: all of it, or none.

    Raises Unavailable for a ledger of a newer tenure, which is left as it is.
    """
    with database.reader.connect() as connection:
        if _is_current(revision_of(connection), database.where):
            return
    connection = database.begin(durable=True)
    try:
        if not _is_current(revision_of(connection), database.where):  # another process may have been quicker
            if inspect(connection).has_table(_version.name):
                upgrade(connection)
            else:
                make(connection)
        connection.commit()
    except BaseException:
        database.drop_writer()
        raise
    database.settle(database.committed())


def _is_current(found: str | None, where: str) -> bool:
    if found is not None and found not in REVISIONS:
        raise Unavailable(f"the ledger at {where} was written by a newer tenure (schema {found}, this one knows up to {HEAD}); use that version")  # fmt: skip
    return found == HEAD


def make(connection: Connection) -> None:
    """A new ledger: what all migrations together would have made."""
    metadata.create_all(connection, checkfirst=False)
    connection.execute(insert(sequences), [{"name": "job", "value": 0}, {"name": "job-row", "value": 0}])
    _version.create(connection)
    connection.execute(insert(_version).values(version_num=HEAD))


def config() -> Config:
    """Alembic's configuration: this folder, and no file."""
    from alembic.config import Config

    made = Config()
    made.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    return made


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Run the migrations up to `revision` inside the transaction that is open on the connection."""
    from alembic import command

    made = config()
    made.attributes["connection"] = connection
    command.upgrade(made, revision)
