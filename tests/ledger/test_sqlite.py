"""What only a file can suffer: odd paths, no room, no permission, no SQLite in it, a process that dies."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure.domain.errors import InvalidRequest, Unavailable
from tenure.domain.ids import Instant, JobId
from tenure.domain.lifecycle import JobState
from tenure.ledger import Ledger, NewJob

T = Instant(1_790_000_000_000_000)


def submit(ledger: Ledger, *ids: str, spec: str = "{}") -> None:
    with ledger.transaction() as tx:
        tx.add_jobs([NewJob(id=JobId(i), name="x", spec=spec) for i in ids], T)


@pytest.mark.parametrize("name", ["a home", "训练 é", "50%?x#y&z", "q'\"q"])
def test_a_home_may_have_any_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "ledger.db"
    path.parent.mkdir()
    for number in ("1", "2"):
        ledger = Ledger.open(path)
        submit(ledger, number)
        ledger.close()
    assert [p.name for p in path.parent.iterdir()] == ["ledger.db"]
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_the_file_is_private_from_the_start(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    submit(ledger, "1")
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    ledger.close()
    assert set(modes.values()) == {0o600}
    assert "ledger.db-wal" in modes


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_room_is_said_and_nothing_is_half_done(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    submit(ledger, "1")
    last = ledger.last_event_id()
    wal = (tmp_path / "ledger.db-wal").stat().st_size
    with files_no_larger_than(wal + 8192), pytest.raises(Unavailable, match="nothing was changed"):
        submit(ledger, *(str(n) for n in range(2, 300)), spec='"' + "x" * 100_000 + '"')
    assert [row.id for row in ledger.live_jobs()] == ["1"]
    assert ledger.last_event_id() == last
    submit(ledger, "2")
    ledger.close()


@contextmanager
def as_nobody() -> Iterator[None]:
    """Permissions mean nothing to root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_home_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with as_nobody(), pytest.raises(Unavailable, match="TENURE_HOME"):
            Ledger.open(tmp_path / "ledger.db")
        assert list(tmp_path.iterdir()) == []
    finally:
        tmp_path.chmod(0o755)
    with pytest.raises(Unavailable, match="No such file"):
        Ledger.open(tmp_path / "nowhere" / "ledger.db")


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    path.chmod(0o444)
    with as_nobody(), pytest.raises(Unavailable):
        Ledger.open(path)


def test_a_file_of_something_else_is_said_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_text("a diary of another kind\n" * 100)
    with pytest.raises(Unavailable, match="not an SQLite database"):
        Ledger.open(path)
    assert path.read_text().startswith("a diary of another kind")


@pytest.mark.parametrize("url", [
    "mysql://x:secret@h/y", "sqlite://", "sqlite:///:memory:", "://", "nonsense", "", "/var/lib/ledger", "postgresql://x:secret@h:y/d",
])  # fmt: skip
def test_other_databases_are_refused_and_no_file_is_made(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest, match="TENURE_LEDGER_URL takes sqlite:") as refused:
        Ledger.open(url)
    assert "secret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_writer_leaves_what_it_committed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    script = f"""
import os
from tenure.ledger import Ledger, NewJob
ledger = Ledger.open("sqlite:///{path}")
with ledger.transaction() as tx:
    tx.add_jobs([NewJob(id="1", name="x", spec="{{}}")], 1)
with ledger.transaction() as tx:
    tx.add_jobs([NewJob(id="2", name="x", spec="{{}}")], 1)
    tx.flush()
    os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    ledger = Ledger.open(path)
    assert [(row.id, row.state) for row in ledger.jobs().items] == [("1", JobState.QUEUED)]
    assert [e.job_id for e in ledger.events()] == ["1"]
    submit(ledger, "2")
    ledger.close()


def test_the_log_moves_into_the_file_beside_the_writers(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    for n in range(220):  # 2 MB: far below where a commit would have to move them itself
        with ledger.transaction(durable=False) as tx:
            tx.add_jobs([NewJob(id=JobId(str(n)), name="x" * 10_000, spec="{}")], T)
    deadline = time.monotonic() + 20
    while (tmp_path / "ledger.db").stat().st_size < 1_000_000:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    ledger.close()
    assert [t.name for t in threading.enumerate() if t.name == "ledger-checkpoints"] == []


def test_a_durable_commit_is_on_disk_before_it_returns(tmp_path: Path) -> None:
    """Seen from outside: the calls that reach the kernel, in their order."""
    path = tmp_path / "ledger.db"
    script = f"""
import os, sys
from tenure.ledger import Ledger, NewJob
real = os.fdatasync
ledger = Ledger.open("sqlite:///{path}")
flushed = []
os.fdatasync = lambda fd: (flushed.append(os.readlink(f"/proc/self/fd/{{fd}}")), real(fd))
for durable in (True, False, True):
    with ledger.transaction(durable) as tx:
        tx.next_job_number()
    print(durable, [os.path.basename(f) for f in flushed])
    flushed.clear()
"""
    said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert said == "True ['ledger.db-wal']\nFalse []\nTrue ['ledger.db-wal']\n"


def test_a_durable_commit_flushes_the_log_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last connection takes the log with it: what is written after that stands in another file."""
    ledger = Ledger.open(tmp_path / "ledger.db")
    submit(ledger, "1")
    ledger._database.drop_writer()
    ledger._database.reader.dispose()
    assert not (tmp_path / "ledger.db-wal").exists()
    flushed: list[str] = []
    real = os.fdatasync

    def noted(fd: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", noted)
    submit(ledger, "2")
    assert flushed == [str(tmp_path / "ledger.db-wal")]
    assert {job.id for job in ledger.live_jobs()} == {"1", "2"}
    ledger.close()
