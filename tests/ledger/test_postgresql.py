"""What only a server can suffer: it is not there, it goes away, it comes back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tenure.domain.errors import Unavailable
from tenure.domain.ids import Instant, JobId
from tenure.ledger import Ledger, NewJob

T = Instant(1_790_000_000_000_000)


def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="not usable now"):
        Ledger.open(f"postgresql+psycopg://tenure:secret@/x?host={tmp_path}")


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        Ledger.open(f"postgresql+psycopg://tenure:secret@/x?host={tmp_path}")
    assert "secret" not in str(caught.value)


def test_a_driver_that_is_not_installed_is_said() -> None:
    script = """
import sys
sys.modules["psycopg"] = None
from tenure.domain.errors import Unavailable
from tenure.ledger import Ledger
try:
    Ledger.open("postgresql://h/d")
except Unavailable as error:
    print(error.code, error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("MissingDriver ")
    assert "pip install 'tenure[postgres]'" in done.stdout


def test_a_ledger_outlives_its_connections(postgres: str, postgres_url: Callable[[], str]) -> None:
    ledger = Ledger.open(postgres_url())
    with ledger.transaction() as tx:
        tx.add_jobs([NewJob(id=JobId("1"), name="x", spec="{}")], T)
    assert ledger.job("1").id == "1"
    with psycopg.connect(host=postgres, user="tenure", dbname="postgres", autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")  # fmt: skip
    assert ledger.job("1").id == "1"
    with ledger.transaction() as tx:
        assert tx.next_job_number() == 1
    ledger.close()
