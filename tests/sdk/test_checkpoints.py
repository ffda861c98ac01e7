"""Checkpoints: whole or not there, never overwritten, and the latest intact one is found."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tenure.sdk.checkpoints import Checkpoints


@pytest.fixture
def kept(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(os.listdir(checkpoints.directory))


def test_what_is_written_is_found(kept: Checkpoints) -> None:
    assert kept.latest() is None
    kept.write(1, b"one")
    made = kept.write(20, lambda file: pickle.dump({"w": [1.5]}, file))
    kept.write(3, "three")
    latest = kept.latest()
    assert latest == made
    assert pickle.loads(latest.read()) == {"w": [1.5]}
    assert latest.size == len(latest.read())
    assert len(names(kept)) == 3


def test_a_damaged_one_is_passed_over_for_the_one_before(kept: Checkpoints) -> None:
    first, second, third = kept.write(1, b"one"), kept.write(2, b"two"), kept.write(3, b"three")
    third.path.write_bytes(b"thre")
    assert kept.latest() == second
    second.path.write_bytes(b"")
    assert kept.latest() == first
    first.path.unlink()
    assert kept.latest() is None


def test_nothing_is_overwritten(kept: Checkpoints) -> None:
    first = kept.write(5, b"same")
    before = first.path.stat().st_mtime_ns, first.path.stat().st_ino
    assert kept.write(5, b"same") == first
    assert (first.path.stat().st_mtime_ns, first.path.stat().st_ino) == before
    other = kept.write(5, b"other")
    assert first.read() == b"same"
    os.utime(first.path, ns=(1, 1))
    assert kept.latest() == other


def test_a_failed_write_leaves_nothing(kept: Checkpoints) -> None:
    def fail(file: IO[bytes]) -> None:
        file.write(b"half")
        raise KeyError("out of memory")

    kept.write(1, b"one")
    with pytest.raises(KeyError):
        kept.write(2, fail)
    assert len(names(kept)) == 1
    for step in (-1, True, 1.5):
        with pytest.raises(ValueError, match="whole number"):
            kept.write(step, b"")  # type: ignore[arg-type]


def test_only_the_newest_stay_and_the_chain_is_left_alone(tmp_path: Path) -> None:
    old = Checkpoints(tmp_path / "old")
    old.write(100, b"old")
    kept = Checkpoints(tmp_path / "new", chain=[tmp_path / "missing", old.directory], keep=2)
    latest = kept.latest()
    assert latest is not None
    assert latest.step == 100
    for step in range(5):
        kept.write(101 + step, bytes([step]))
    assert [name[5:17] for name in names(kept)] == ["000000000104", "000000000105"]
    assert len(names(old)) == 1
    with pytest.raises(ValueError, match="keep=0"):
        Checkpoints(tmp_path, keep=0)


def test_ranks_keep_their_own_and_share_rank_zeros(tmp_path: Path) -> None:
    zero, one, two = (Checkpoints(tmp_path, prefix=prefix) for prefix in ("", "rank1-", "rank2-"))
    zero.write(9, b"zero")
    mine = one.write(8, b"one")
    assert one.latest() == mine
    assert two.latest() == zero.latest()
    assert [zero.latest().step] == [9]  # type: ignore[union-attr]


def test_killed_while_writing_it_leaves_a_temporary_that_the_next_one_removes(kept: Checkpoints) -> None:
    kept.write(1, b"one")
    program = """
import sys
from pathlib import Path
from tenure.sdk.checkpoints import Checkpoints
def write(file):
    file.write(b"half"); file.flush(); print("writing", flush=True); sys.stdin.read()
Checkpoints(Path(sys.argv[1])).write(2, write)
"""
    command = [sys.executable, "-c", program, str(kept.directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        assert len(names(kept)) == 2
        kept.write(3, b"three")
        assert len(names(kept)) == 3  # it lives: its file is not ours to remove
        writer.send_signal(signal.SIGKILL)
    latest = kept.latest()
    assert latest is not None
    assert latest.step == 3
    kept.write(4, b"four")
    assert [name for name in names(kept) if name.startswith(".")] == []


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        Checkpoints(tmp_path / "file" / "checkpoints").write(1, b"x")
