"""A ledger of any age becomes one of today and keeps what is in it, on both databases."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Boolean, Connection, Integer, MetaData, inspect, select, text

from tenure.domain.errors import HouseFault, Unavailable
from tenure.domain.ids import Instant, JobId
from tenure.domain.lifecycle import JobState
from tenure.ledger import Ledger, NewJob
from tenure.ledger.database import Database, open_database
from tenure.ledger.migrations import HEAD, REVISIONS, config, make, upgrade
from tenure.ledger.schema import metadata

Rows = dict[str, list[dict[str, Any]]]
LATER = {"alembic_version"}


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    new: Callable[..., str] = request.getfixturevalue("postgres_url")
    return new(empty=True)


@pytest.fixture
def database(empty_url: str) -> Iterator[Database]:
    opened = open_database(empty_url)
    yield opened
    opened.close()


def _at(database: Database, revision: str) -> Rows:
    """Bring the database to an old schema and put a row with every column set into each table."""
    connection = database.begin(durable=False)
    upgrade(connection, revision)
    old = MetaData()
    old.reflect(connection)
    for table in old.tables.values():
        if table.name not in LATER:
            for n in (1, 2):
                connection.execute(table.insert(), {c.name: _cell(c.name, c.type, n) for c in table.columns})
    connection.commit()
    return _rows(database)


def _cell(column: str, kind: object, n: int) -> object:
    if isinstance(kind, Boolean):
        return n == 1
    if isinstance(kind, Integer):
        return 1_790_000_000_000_000 + n
    if column in {"labels", "fingerprint", "changes", "data", "summary", "reservation", "placement", "survivors"}:
        return "{}"
    return {"state": "ended", "outcome": "failed", "kind": "JobEnded"}.get(column, f"{column} ü {n}")


def _rows(database: Database) -> Rows:
    with database.reader.connect() as connection:
        now = MetaData()
        now.reflect(connection)
        return {
            t.name: [dict(row._mapping) for row in connection.execute(select(t).order_by(*t.primary_key.columns))]
            for t in now.tables.values()
            if t.name not in LATER
        }


def _differences(connection: Connection) -> list[Any]:
    return list(compare_metadata(MigrationContext.configure(connection), metadata))


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_earlier_schema_comes_up_with_its_rows(database: Database, empty_url: str, revision: str) -> None:
    before = _at(database, revision)
    ledger = Ledger.open(empty_url)
    try:
        after = _rows(database)
        for table, rows in before.items():
            kept = [{column: row[column] for column in rows[0]} for row in after[table]] if rows else after[table]
            assert kept == rows
        with database.reader.connect() as connection:
            assert _differences(connection) == []
        (newest, _) = ledger.jobs().items
        assert (newest.state, newest.name) == (JobState.ENDED, "name ü 2")
        assert ledger.attempt("run_id ü 1").job_id == "job_id ü 1"
        assert [run.name for run in ledger.runs().items] == ["name ü 2", "name ü 1"]
        assert len(ledger.events()) == 2
        with ledger.transaction() as tx:
            tx.add_jobs([NewJob(id=JobId(f"n{tx.next_job_number()}"), name="x", spec="{}")], Instant(1))
    finally:
        ledger.close()


def test_a_new_ledger_has_the_schema_of_the_code(database: Database, empty_url: str) -> None:
    Ledger.open(empty_url).close()
    with database.reader.connect() as connection:
        assert _differences(connection) == []
        indexes = {i.name for t in metadata.tables.values() for i in t.indexes}
        where = "sqlite_master WHERE type='index'" if database.writer.dialect.name == "sqlite" else "pg_indexes"
        name = "name" if database.writer.dialect.name == "sqlite" else "indexname"
        assert indexes <= {row[0] for row in connection.execute(text(f"SELECT {name} FROM {where}"))}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_new_ledger_is_what_all_migrations_make(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pictures = []
    for name, fill in (("migrated", upgrade), ("made", make)):
        url = (
            f"sqlite:///{tmp_path}/{name}.db"
            if kind == "sqlite"
            else request.getfixturevalue("postgres_url")(empty=True)
        )
        database = open_database(url)
        connection = database.begin(durable=False)
        fill(connection)
        connection.commit()
        pictures.append(_picture(database))
        database.close()
    assert pictures[0] == pictures[1]
    assert pictures[1]["alembic_version"]["rows"] == [(HEAD,)]


def _picture(database: Database) -> dict[str, dict[str, object]]:
    """Every table with its columns, keys and indexes, and the rows that are there from the beginning."""
    with database.reader.connect() as connection:
        look = inspect(connection)
        found = MetaData()
        found.reflect(connection)
        return {
            name: {
                "columns": sorted((c["name"], str(c["type"]), c["nullable"]) for c in look.get_columns(name)),
                "key": look.get_pk_constraint(name)["constrained_columns"],
                "unique": sorted(u["column_names"] for u in look.get_unique_constraints(name)),
                "indexes": sorted((i["name"], i["column_names"], i["unique"], _words(i.get("dialect_options"))) for i in look.get_indexes(name)),
                "counts by itself": _counts_by_itself(connection, name),
                "rows": sorted(map(tuple, connection.execute(select(table)))),
            }
            for name, table in found.tables.items()
        }  # fmt: skip


def _words(options: Mapping[str, object] | None) -> list[tuple[str, str]]:
    return sorted((name, str(value)) for name, value in (options or {}).items())


def _counts_by_itself(connection: Connection, table: str) -> bool:
    """SQLite's AUTOINCREMENT, which no inspection tells."""
    if connection.dialect.name != "sqlite":
        return False
    found = connection.execute(text("SELECT sql FROM sqlite_master WHERE name = :name"), {"name": table}).scalar()
    return "AUTOINCREMENT" in str(found)


def test_a_new_ledger_needs_no_alembic(tmp_path: Path) -> None:
    script = f"import sys; from tenure.ledger import Ledger; Ledger.open('sqlite:///{tmp_path}/new.db').close(); print('alembic' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )


def test_the_list_of_revisions_is_alembics() -> None:
    scripts = ScriptDirectory.from_config(config())
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(REVISIONS)
    assert scripts.get_current_head() == HEAD


def test_a_migration_that_fails_leaves_the_ledger_as_it_was(database: Database, empty_url: str) -> None:
    before = _at(database, "0001")
    connection = database.begin(durable=False)
    connection.execute(text("CREATE INDEX runs_by_job ON runs (job_id)"))  # in the way of the last step of 0002
    connection.commit()
    with pytest.raises(HouseFault):
        Ledger.open(empty_url)
    assert _rows(database) == before
    assert "processes" not in before["attempts"][0]
    connection = database.begin(durable=False)
    assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "0001"
    connection.execute(text("DROP INDEX runs_by_job"))
    connection.commit()
    Ledger.open(empty_url).close()


def test_the_ledger_of_a_newer_version_is_left_alone(database: Database, empty_url: str) -> None:
    Ledger.open(empty_url).close()
    connection = database.begin(durable=False)
    connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    connection.commit()
    with pytest.raises(Unavailable, match="newer"):
        Ledger.open(empty_url)
    connection = database.begin(durable=False)
    assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "9999"
    connection.rollback()


def test_opening_a_ledger_of_today_is_quick_and_needs_no_alembic(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    took = []
    for _ in range(5):
        start = time.process_time()
        Ledger.open(path).close()
        took.append(time.process_time() - start)
    assert min(took) < 0.030
    script = f"import sys; from tenure.ledger import Ledger; Ledger.open('sqlite:///{path}').close(); print('alembic' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )
