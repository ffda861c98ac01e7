"""The directive lines of a script, as a list of options with their values and lines.

As in Slurm, only lines before the first command count, `#SBATCH` stands at the very beginning of a line, an unquoted
`#` ends it, and a word that is no option is refused: it is mostly the rest of a value that wants quotes.  A backslash at
the end joins the next directive line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from tenure.domain.errors import Problem

from .sbatch_options import OPTIONS, TENURE_OPTIONS, Option, find_long, find_short
from .spelling import nearest

__all__ = ["Given", "Lines", "has_directives", "read_lines"]

_DIRECTIVE = re.compile(r"#(SBATCH|TENURE)(?=\s|$)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One option as given.  `ours`: it stood on a `#TENURE` line.  `shown` is its spelling, for messages."""

    option: Option
    value: str
    line: int
    ours: bool
    shown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    given: tuple[Given, ...]
    notes: tuple[str, ...]
    problems: tuple[Problem, ...]


def has_directives(text: str) -> bool:
    return any(True for _ in _directives(text))


def _directives(text: str) -> Iterator[tuple[int, bool, str]]:
    """(line, ours, rest) of each directive line before the first command."""
    for number, line in enumerate(text.split("\n"), start=1):
        if match := _DIRECTIVE.fullmatch(line.rstrip("\r")):
            yield number, match[1] == "TENURE", match[2]
        elif line.strip() and not line.lstrip().startswith("#"):
            return


def _late(text: str) -> Iterator[int]:
    """Lines that look like directives and come after the first command, where neither Slurm nor we read them."""
    commands = False
    for number, line in enumerate(text.split("\n"), start=1):
        if commands and _DIRECTIVE.fullmatch(line):
            yield number
        commands = commands or bool(line.strip() and not line.lstrip().startswith("#"))


class _Tell(Protocol):
    def __call__(self, line: int, what: str, message: str) -> None: ...


def read_lines(file: str, text: str) -> Lines:
    """Every option in order.  What is unknown is in the notes (of `#TENURE`: in the problems)."""
    given: list[Given] = []
    notes: list[str] = []
    problems: list[Problem] = []

    def tell(line: int, what: str, message: str) -> None:
        problems.append(Problem(file=file, document=None, line=line, field=what, message=message))

    for line, ours, rest in _joined(text, tell):
        kind = "#TENURE" if ours else "#SBATCH"
        try:
            words = shlex.split(rest, comments=True)
        except ValueError as e:
            tell(line, kind, f"cannot be taken apart: {str(e).lower()}; check the quotes")
            continue
        if not ours and words and words[0] in {"hetjob", "packjob"}:
            tell(line, kind, "a heterogeneous job is not read here; submit its parts as jobs of their own")
            continue
        _options(words, line, ours, given, notes, tell)
    notes.extend(f"line {line}: comes after the first command and is not read, as in Slurm" for line in _late(text))
    return Lines(given=tuple(given), notes=tuple(notes), problems=tuple(problems))


def _joined(text: str, tell: _Tell) -> Iterator[tuple[int, bool, str]]:
    """Directive lines with their continuations."""
    lines = list(_directives(text))
    at = 0
    while at < len(lines):
        first, ours, rest = lines[at]
        while rest.rstrip().endswith("\\"):
            rest = rest.rstrip()[:-1]
            here = lines[at][0]
            if at + 1 == len(lines) or lines[at + 1][:2] != (here + 1, ours):
                tell(here, "", "the backslash at the end continues to no directive line; remove it")
                break
            at += 1
            rest += " " + lines[at][2]
        yield first, ours, rest
        at += 1


def _options(words: list[str], line: int, ours: bool, given: list[Given], notes: list[str], tell: _Tell) -> None:
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            option, hint = find_long(name, TENURE_OPTIONS if ours else OPTIONS)
            shown = f"--{name}"
        elif word.startswith("-") and len(word) > 1 and not ours:
            option, hint, shown = find_short(word[1]), "", word[:2]
            equals, value = ("=", word[2:]) if len(word) > 2 else ("", "")
            if option is not None and option.value == "no" and value:
                queue.insert(0, "-" + value)  # -HQ is -H -Q
                equals, value = "", ""
        else:
            hint = nearest(word, TENURE_OPTIONS) if ours else "; a value with blanks in it goes in quotes"
            tell(line, "#TENURE" if ours else "#SBATCH", f'"{word[:60]}" is not an option{hint}')
            continue
        if option is None:
            if not equals and queue and not queue[0].startswith("-"):
                value = queue.pop(0)
            if ours:
                tell(line, shown, f"is not an option of #TENURE{nearest(shown.lstrip('-'), TENURE_OPTIONS)}")
            else:
                notes.append(f"line {line}: {shown} is not an option that is known here{hint or ''}; ignored")
            continue
        if option.value == "yes" and not equals:
            if not queue:
                tell(line, shown, "needs a value and has none")
                continue
            value = queue.pop(0)
        if option.value == "no" and equals:
            tell(line, shown, f"takes no value, and has {value[:40]!r}; remove it")
            continue
        if option.note:
            notes.append(f"line {line}: --{option.name}{'=' + value if value else ''} {option.note}")
            continue
        given.append(Given(option=option, value=value, line=line, ours=ours, shown=shown))
