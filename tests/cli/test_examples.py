"""The README's first five minutes are true: every example is submitted as it stands there, and completes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("tenure")
SUBMITS = [
    shlex.split(line.split(" # ")[0])[1:]
    for line in (ROOT / "README.md").read_text().splitlines()
    if line.startswith(("tenure submit ", "tenure run "))
]


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory):
    home = tmp_path_factory.mktemp("readme")
    env = {**os.environ, "TENURE_HOME": str(home), "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    _tenure(env, "up", "-d", "--card", "8x16Gi")
    yield env
    _tenure(env, "down")


def _tenure(env: dict[str, str], *words: str) -> str:
    done = subprocess.run([PROGRAM, *words], env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout.strip()


def test_the_readme_has_examples():
    assert len(SUBMITS) >= 5


@pytest.mark.parametrize("words", SUBMITS, ids=[" ".join(w) for w in SUBMITS])
def test_an_example_does_what_it_says(env: dict[str, str], words: list[str]):
    said = _tenure(env, *words)
    if words[0] == "run":
        assert said == "hello"
        return
    _tenure(env, "wait", said)
    shown = json.loads(_tenure(env, "show", said, "-o", "json"))
    assert (shown["state"], shown["outcome"]) == ("ended", "completed")
    assert _tenure(env, "logs", said)
