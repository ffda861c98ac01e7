"""Start-up is a promise: what is loaded decides it, so that is what is held fast; the clock is the benchmark's."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tenure.cli.main import module_of
from tenure.cli.verbs import ALIASES, VERBS

HEAVY = (
    "typer",
    "click",
    "rich",
    "yaml",
    "httpx",
    "fastapi",
    "sqlalchemy",
    "pydantic",
    "asyncio",
    "subprocess",
    "argparse",
)


def loaded_by(*words: str) -> set[str]:
    script = "import sys; from tenure.cli.main import main; main(sys.argv[1:]); print('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        check=True,
        env={"TENURE_HOME": "/nonexistent"},
    )
    return {line for line in done.stderr.splitlines() if " " not in line}


def test_the_help_loads_no_verb_and_no_way_to_the_platform() -> None:
    loaded = loaded_by("--help")
    assert "tenure.cli.manual" in loaded
    assert not loaded & {*HEAVY, "http.client", "json", "dataclasses_json", "tenure.cli.ps", "tenure.settings"}


def test_ps_loads_its_own_verb_and_nothing_heavy() -> None:
    loaded = loaded_by("ps")
    assert "tenure.cli.ps" in loaded
    assert not loaded & {*HEAVY, "tenure.cli.run", "tenure.cli.submit", "tenure.cli.doctor", "tenure.cli.follow"}


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_a_module_that_declares_it(name: str) -> None:
    assert module_of(name).VERB.usage.startswith(name)


def test_every_alias_means_a_verb_and_hides_none() -> None:
    assert set(ALIASES.values()) <= set(VERBS)
    assert not set(ALIASES) & set(VERBS)
