"""docs/cli.md says what is so: its table is the verbs', and its examples are played on a fresh platform."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from tenure.cli.verbs import VERBS

from .conftest import TENURE, Home

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_table_is_the_verbs() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^`].*?) \|$", PAGE.read_text("utf-8"), re.M)
    assert rows == [(name, entry.summary) for name, entry in VERBS.items()]


def test_every_flag_is_on_the_page() -> None:
    said: dict[str, set[str]] = {}
    for verbs, flags in re.findall(r"^\| ((?:`\w+` ?)+)\| (`-.+?) \|$", PAGE.read_text("utf-8"), re.M):
        for verb in re.findall(r"`(\w+)`", verbs):
            said.setdefault(verb, set()).update(re.findall(r"-[\w-]+", flags))
    taken = {name: import_module(f"tenure.cli.{name}").VERB.options for name in VERBS}
    flags_of = {
        verb: {name for option in options for name in option.names if not option.hidden}
        for verb, options in taken.items()
    }
    assert said == {verb: flags for verb, flags in flags_of.items() if flags}


def examples() -> Iterator[tuple[str, str]]:
    """Each command of the page's console blocks with what it is said to print."""
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def matches(expected: str, found: str) -> bool:
    """`…` stands for anything, across lines too."""
    pattern = ".*?".join(re.escape(piece) for piece in expected.rstrip("\n").split("…"))
    return re.fullmatch(pattern, found.rstrip("\n"), re.S) is not None


def test_the_examples_are_true(private: Home, tmp_path: Path) -> None:
    env = {**private.env, "PATH": f"{TENURE.parent}:{private.env['PATH']}"}
    for command, expected in examples():
        done = subprocess.run(
            ["bash", "-c", command],
            env=env,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        found = done.stdout + (f"[exit {done.returncode}]\n" if done.returncode else "")
        assert matches(expected, found), f"$ {command}\n{found}\nis not what the page says:\n{expected}"
