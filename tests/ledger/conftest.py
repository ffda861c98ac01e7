"""Both databases, real: an SQLite file of the test's own, and a database in a private PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tenure.ledger import Ledger

BACKENDS = ("sqlite", "postgresql")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda p: float(p.parts[4]))
        assert places, f"{name} is missing; tests/services.sh installs it"
        found = str(places[-1])
    return found


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A private server: a short directory, a Unix socket and no port, dead with this process.  The socket's directory."""
    place = Path(tempfile.mkdtemp(prefix="tpg-", dir="/tmp"))
    as_somebody = ["setpriv", "--pdeathsig", "INT"]
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        shutil.chown(place, "postgres", "postgres")
        as_somebody += ["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    data, log = place / "data", place / "log"
    quiet = {"stdin": subprocess.DEVNULL, "cwd": place}
    subprocess.run(
        [*as_somebody, _program("initdb"), "-D", data, "-U", "tenure", "-A", "trust", "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync"],
        check=True, stdout=subprocess.DEVNULL, **quiet,
    )  # fmt: skip
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": place,
        "fsync": "off",
        "full_page_writes": "off",
        "shared_buffers": "16MB",
        "autovacuum": "off",
    }
    with log.open("wb") as out:
        server = subprocess.Popen(
            [*as_somebody, _program("postgres"), "-D", data, *(part for k, v in settings.items() for part in ("-c", f"{k}={v}"))],
            stdout=out, stderr=out, start_new_session=True, **quiet,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(host=str(place), user="tenure", dbname="postgres").close()
                break
            except psycopg.OperationalError:
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
        yield str(place)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)
        shutil.rmtree(place)


_numbers = count(1)


@pytest.fixture(scope="session")
def postgres_url(postgres: str) -> Callable[..., str]:
    """Gives the URL of a new database: empty, or a copy of one that already has today's schema."""

    def url(name: str) -> str:
        return f"postgresql+psycopg://tenure@/{name}?host={postgres}"

    def execute(sql: str) -> None:
        with psycopg.connect(host=postgres, user="tenure", dbname="postgres", autocommit=True) as connection:
            connection.execute(sql)

    execute("CREATE DATABASE today")
    Ledger.open(url("today")).close()

    def new(*, empty: bool = False) -> str:
        name = f"t{next(_numbers)}"
        execute(f"CREATE DATABASE {name}" + ("" if empty else " TEMPLATE today"))
        return url(name)

    return new


@pytest.fixture(params=BACKENDS)
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger of the test's own may be: each test that asks runs on both databases."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    new: Callable[[], str] = request.getfixturevalue("postgres_url")
    return new()


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    opened = Ledger.open(ledger_url)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger.open(tmp_path / "ledger.db")
    yield opened
    opened.close()
