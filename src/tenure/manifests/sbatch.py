"""`#SBATCH` scripts, read into the one job model.

The script is one process; `srun` inside it starts the tasks.  Cards, CPUs and memory are therefore those of the whole
script.  Options that are known and have no effect on one machine, and options that are not known, are in the notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import PurePath

from tenure.domain.errors import InvalidManifest, Problem
from tenure.domain.ids import Instant
from tenure.domain.job import JobSpec, LogSpec

from .sbatch_lines import Given, read_lines
from .sbatch_meaning import APPLY, Draft, totals
from .sbatch_values import Export

__all__ = ["SbatchReading", "read_sbatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SbatchReading:
    """`understood` maps each option that was read to its value as written (the last one, where given twice)."""

    spec: JobSpec
    understood: Mapping[str, str]
    export: Export


def read_sbatch(path: str, text: str, now: Instant, zone: tzinfo | None = None) -> SbatchReading:
    """The script as a job.  `zone` is where clock times in `--begin` are (None = this machine's).

    Raises InvalidManifest with the line of every malformed value.
    """
    problems = list(_unfit(path, text))
    lines = read_lines(path, text)
    problems.extend(lines.problems)
    draft = Draft(now=now, zone=zone)
    understood: dict[str, str] = {}
    for given in lines.given:
        draft.where[given.option.name] = given
        try:
            APPLY[given.ours, given.option.name](draft, given)
        except ValueError as e:
            problems.append(_problem(path, given, str(e)))
            continue
        understood[given.option.name] = given.value
    for name, message in totals(draft):
        problems.append(_problem(path, draft.where[name], message))
    if problems:
        raise InvalidManifest(sorted(problems, key=lambda p: p.line or 0))
    spec = JobSpec(
        **{"name": PurePath(path).name or "sbatch", **draft.fields},
        script=text,
        env=draft.env,
        labels=draft.labels,
        logs=LogSpec(output=draft.output, error=draft.error, append=draft.append),
        sbatch=True,
        notes=(*lines.notes, *draft.notes),
    )
    return SbatchReading(spec=spec, understood=understood, export=draft.export)


def _problem(path: str, given: Given, message: str) -> Problem:
    return Problem(file=path, document=None, line=given.line, field=given.shown, message=message)


def _unfit(path: str, text: str) -> list[Problem]:
    """What sbatch itself refuses of a script."""
    found: list[tuple[int, str]] = []
    if not text.strip():
        found.append((1, "the script is empty"))
    elif not text.startswith("#!"):
        found.append((1, "the first line must say what runs the script; write #!/bin/bash"))
    if "\r\n" in text:
        line = text[: text.index("\r\n")].count("\n") + 1
        found.append((line, "the lines end as on DOS, and no interpreter is found that way; convert it with dos2unix"))
    if "\0" in text:
        found.append((text[: text.index("\0")].count("\n") + 1, "contains a NUL character; a script is text"))
    return [Problem(file=path, document=None, line=line, field="", message=message) for line, message in found]
