"""The newcomer's page is run as it is printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.sdk.record import read_record

DOCS = Path(__file__).parents[2] / "docs"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / "sdk.md").read_text(), re.DOTALL)


@pytest.fixture
def walk(tmp_path: Path) -> Path:
    (tmp_path / "walk.py").write_text(blocks("python")[0])
    (tmp_path / "spec.toml").write_text("steps = 30\n")
    return tmp_path


def run(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {name: text for name, text in os.environ.items() if not name.startswith("TENURE_")}
    return subprocess.run([sys.executable, *words], cwd=where, env=env, capture_output=True, text=True, check=True)


def test_the_study_and_its_commands_work_as_printed(walk: Path) -> None:
    commands = [line[2:].split("#")[0].split() for line in blocks("console")[0].splitlines()]
    assert [words[0] for words in commands] == ["python"] * 3
    shown = [run(walk, *words[1:]) for words in commands]
    assert "how far to walk" in shown[1].stdout
    records = [read_record(path) for path in sorted((walk / "runs").iterdir()) if path.is_dir()]
    assert [(record.outcome, record.config) for record in records] == [
        ("completed", {"steps": 500, "seed": 3}),
        ("completed", {"steps": 30, "seed": 4}),
    ]
    assert len(records[0].checkpoints) == 5


def test_the_calls_from_python_work_as_printed(walk: Path) -> None:
    run(walk, "-c", "from walk import *\n" + blocks("python")[1])
    assert len([path for path in (walk / "runs").iterdir() if path.is_dir()]) == 2


def test_it_resumes_to_the_same_end(walk: Path) -> None:
    undisturbed = run(walk, "walk.py", "--steps", "730")
    first = run(walk, "walk.py", "--steps", "450")
    name = first.stderr.split()[2]
    second = run(walk, "walk.py", "--steps", "730", "--resume", name)
    ends = [read_record(walk / "runs" / done.stderr.split()[2]) for done in (undisturbed, second)]
    assert ends[0].results == ends[1].results
    assert ends[1].resumed_from is not None
    assert ends[1].resumed_from["step"] == 400


def test_every_kind_of_line_is_on_the_page() -> None:
    text = (DOCS / "records.md").read_text()
    source = Path(__file__).parents[2] / "src" / "tenure" / "sdk"
    kinds = {kind for path in source.glob("*.py") for kind in re.findall(r'\.line\(\s*"([a-z_]+)"', path.read_text())}
    assert len(kinds) > 10
    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in text] == []
