"""The check for a machine with a real card, on a fake card: it passes where all is well, and sees what is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nvml_fixtures import FakeNvml

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


@pytest.fixture
def venv_of_stub(tmp_path: Path) -> Path:
    """An environment whose `tenure` is the stub."""
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    for name, words in (("python", ""), ("tenure", HERE / "stub_tenure.py")):
        program = tmp_path / "venv" / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        program.chmod(0o755)
    return tmp_path / "venv"


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[Callable[[], list[str]]]:
    """Names the processes that have this test's folder for temporary files in their environment."""

    def look() -> list[str]:
        mark, found = f"TMPDIR={tmp_path}".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return found

    yield look
    assert look() == []


def check(fake: FakeNvml, venv: Path, tmp_path: Path, **env: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [str(ROOT / "deploy" / "check-card.sh")],
        env=fake.environ(CARD_VENV=str(venv), TMPDIR=str(tmp_path), CHECK_CARD_CLOSING_S="0.3", **env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


Make = Callable[..., FakeNvml]
Left = Callable[[], list[str]]


def test_a_platform_that_does_all_right_passes_every_check(
    fake_nvml: Make, venv_of_stub: Path, tmp_path: Path, nothing_left: Left
) -> None:
    code, lines = check(fake_nvml(), venv_of_stub, tmp_path)
    assert (code, [line for line in lines if not line.startswith("ok")]) == (0, [])
    assert len(lines) == 9
    assert not list(tmp_path.glob("tenure-card.*"))


@pytest.mark.parametrize("cards", [1, 2])
def test_tenure_itself_passes_every_check(fake_nvml: Make, tmp_path: Path, nothing_left: Left, cards: int) -> None:
    code, lines = check(fake_nvml(cards=cards), Path(sys.prefix), tmp_path)
    assert (code, [line for line in lines if not line.startswith("ok")]) == (0, [])
    assert len(lines) == 8 + cards


@pytest.mark.parametrize(
    ("fault", "failed", "why"),
    [
        ("found-none", "cards are found by NVML", "tenure []"),
        ("blind", "a job sees its card by UUID", "exit 1"),
        ("unmeasured", "a job's memory is attributed to it", "shows measured memory: not within"),
        ("stranger", "a job's memory is attributed to it", "shows measured memory: not within"),
        ("hasty", "a preempted process gives its memory back", "GiB were missing"),
        ("leaves", "nothing is left running", "sleep 300"),
    ],
)
def test_a_platform_that_does_wrong_is_found_out(
    fake_nvml: Make, venv_of_stub: Path, tmp_path: Path, nothing_left: Left, fault: str, failed: str, why: str
) -> None:
    more = {"CHECK_CARD_PATIENCE": "0.1"} if why.endswith("within") else {}
    code, lines = check(fake_nvml(), venv_of_stub, tmp_path, STUB_FAULT=fault, **more)
    assert code == 1
    line = next(line for line in lines if line.startswith("FAILED  "))
    assert failed in line
    assert why in line


def test_a_machine_without_wheels_or_torch_is_told_what_is_missing(tmp_path: Path) -> None:
    """From a copy of the script, so that wheels that somebody has packed do not matter."""
    (tmp_path / "deploy").mkdir()
    script = tmp_path / "deploy" / "check-card.sh"
    script.write_bytes((ROOT / "deploy" / "check-card.sh").read_bytes())
    env = {name: value for name, value in os.environ.items() if name != "CARD_VENV"}
    first = subprocess.run(["bash", str(script)], env=env, capture_output=True, text=True, check=False)
    assert (first.returncode, first.stdout) == (2, "")
    assert "deploy/check-card.sh --pack" in first.stderr
    (tmp_path / "build" / "wheels").mkdir(parents=True)
    bare = {"PATH": env["PATH"], "PYTHON": sys.executable}
    second = subprocess.run(["bash", str(script)], env=bare, capture_output=True, text=True, check=False)
    assert (second.returncode, second.stdout) == (2, "")
    assert "has no torch" in second.stderr
