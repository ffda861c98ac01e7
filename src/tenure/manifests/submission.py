"""Which of the readers a submitted file belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from pathlib import PurePath

from tenure.domain.errors import InvalidManifest, Problem
from tenure.domain.ids import Instant
from tenure.domain.job import JobSpec

from .job import read_jobs
from .sbatch import read_sbatch
from .sbatch_lines import has_directives
from .sbatch_values import Export
from .texts import decode

__all__ = ["Submission", "read_bytes", "read_file", "read_submission"]

READS = "a batch/v1 Job (YAML or JSON), a script with #SBATCH lines and a plain script are read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The jobs of one file.  `kind` is `job`, `sbatch` or `script`; `understood` and `export` are an #SBATCH script's."""

    specs: tuple[JobSpec, ...]
    kind: str
    understood: Mapping[str, str] = field(default_factory=dict)
    export: Export = field(default_factory=Export)


def read_file(path: str, text: str, now: Instant, zone: tzinfo | None = None) -> list[JobSpec]:
    """The jobs of a file's text.  Raises InvalidManifest.

    For a caller that hands on the submitter's whole environment: where the script asked for less, its notes say so.
    """
    submission = read_submission(path, text, now, zone)
    if submission.export.all:
        return list(submission.specs)
    note = f"--export={submission.understood.get('export', '')}: the submitter's other variables are taken along too"
    return [replace(spec, notes=(*spec.notes, note)) for spec in submission.specs]


def read_bytes(path: str, data: bytes, now: Instant, zone: tzinfo | None = None) -> Submission:
    """As `read_submission`, from a file's bytes."""
    text, problems = decode(path, data)
    if problems:
        raise InvalidManifest(problems)
    return read_submission(path, text, now, zone)


def read_submission(path: str, text: str, now: Instant, zone: tzinfo | None = None) -> Submission:
    """The jobs of a file's text, with what else a door wants to know.  `zone`: where clock times in it are."""
    if has_directives(text):
        reading = read_sbatch(path, text, now, zone)
        return Submission(specs=(reading.spec,), kind="sbatch", understood=reading.understood, export=reading.export)
    if text.startswith("#!"):
        return Submission(specs=(_script(path, text),), kind="script")
    if _looks_like_objects(path, text):
        return Submission(specs=tuple(read_jobs(path, text)), kind="job")
    if not text.strip():
        raise _refused(path, "the file is empty")
    if PurePath(path).suffix in {".sh", ".bash", ".sbatch", ".slurm", ".py"}:
        raise _refused(
            path, "the first line must say what runs the script; write #!/bin/bash (or #!/usr/bin/env python3)"
        )
    raise _refused(path, f"this is no job; {READS}")


def _script(path: str, text: str) -> JobSpec:
    if "\0" in text:
        raise _refused(path, "contains a NUL character; a script is text")
    first = text.split("\n", 1)[0]
    if first.endswith("\r"):
        raise _refused(path, "the lines end as on DOS, and no interpreter is found that way; convert it with dos2unix")
    return JobSpec(name=PurePath(path).name or "script", script=text)


def _looks_like_objects(path: str, text: str) -> bool:
    if PurePath(path).suffix in {".yaml", ".yml", ".json"}:
        return True
    return text.lstrip().startswith("{") or re.search(r"^(?:apiVersion|kind)\s*:", text, re.MULTILINE) is not None


def _refused(path: str, message: str) -> InvalidManifest:
    return InvalidManifest([Problem(file=path, document=None, line=1, field="", message=message)])
