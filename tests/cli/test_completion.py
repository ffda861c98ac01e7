"""Completion scripts are taken by the shells that they are for, and complete."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tenure.cli.main import module_of
from tenure.cli.verbs import VERBS

from .conftest import TENURE, Home


def complete(script: str, *words: str, env: dict[str, str] | None = None) -> list[str]:
    """What bash would offer after these words."""
    array = " ".join(f"'{word}'" for word in words)
    ask = f'{script}\nCOMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _tenure; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, check=True, env=env)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> str:
    return Home(tmp_path_factory.mktemp("completion")).ok("completion", "bash")


def test_bash_completes_verbs_flags_and_choices(bash: str) -> None:
    assert complete(bash, "tenure", "can") == ["cancel"]
    assert complete(bash, "tenure", "submit", "--gpu") == ["--gpu-memory"]
    assert complete(bash, "tenure", "ps", "-o", "js") == ["json"]
    assert complete(bash, "tenure", "policy", "rel") == ["reload"]
    assert complete(bash, "tenure", "policy", "try", "--tr") == ["--trace"]
    assert complete(bash, "tenure", "windows", "cl") == ["claim"], "by any of its names"


def test_bash_completes_ids_from_the_platform(home: Home, bash: str) -> None:
    job = home.submit("--hold", "--", "true")
    offered = complete(bash, "tenure", "cancel", "", env={**home.env, "PATH": f"{TENURE.parent}:{home.env['PATH']}"})
    assert job in offered
    assert "@" in offered


@pytest.mark.parametrize("verb", [name for name in VERBS if hasattr(module_of(name), "WORDS")])
def test_bash_completes_every_word_that_a_verb_has(bash: str, verb: str, tmp_path: Path) -> None:
    nobody = {**os.environ, "TENURE_HOME": str(tmp_path)}  # no platform is asked
    assert {*module_of(verb).WORDS} <= {*complete(bash, "tenure", verb, "", env=nobody)}  # type: ignore[attr-defined]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_others_are_well_formed(shell: str, tmp_path: Path) -> None:
    script = Home(tmp_path).ok("completion", shell)
    assert "--gpu-memory" in script or "-l gpu-memory" in script
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=script, text=True, check=True)
