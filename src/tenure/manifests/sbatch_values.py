"""The values of sbatch's options: counts, sizes, signals, dependencies, exports.  ValueError says what would work."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from tenure.domain.amounts import MAX_AMOUNT
from tenure.domain.job import Dependency, DependencyKind, StopSignal

__all__ = [
    "TYPE",
    "Export",
    "parse_count",
    "parse_dependency",
    "parse_export",
    "parse_signal",
    "parse_size",
    "parse_typed_count",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What of the submitter's environment the job gets: all of it, or the named variables alone."""

    all: bool = True
    names: tuple[str, ...] = ()


def parse_count(text: str, *, low: int = 1) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or int(text) < low:
        raise ValueError(f"{text[:40]!r} does not work; write a whole number of at least {low}")
    return int(text)


_SIZE = re.compile(r"(\d{1,15})([KMGTP]?)i?B?", re.ASCII | re.IGNORECASE)


def parse_size(text: str, *, unit: str) -> int:
    """Slurm's sizes: binary units, `unit` where none is written."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a size; write a whole number with K, M, G or T, such as 16G")
    size: int = int(match[1]) << (10 * "_KMGTP".index(match[2].upper() or unit))
    if size > MAX_AMOUNT:
        raise ValueError(f"{text[:40]!r} is out of range")
    return size


TYPE = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
"""What a type of card is called."""


def parse_typed_count(text: str) -> tuple[int, str]:
    """`2`, `a100:2`, `a100` (one), `volta:3,kepler:5`: the sum, and the types."""
    total, types = 0, []
    for part in text.split(","):
        kind, colon, number = part.rpartition(":")
        if not colon and TYPE.fullmatch(part):
            kind, number = part, "1"
        total += parse_count(number, low=0)
        if kind:
            types.append(kind)
    return total, ", ".join(types)


def parse_signal(text: str) -> StopSignal:
    """`[R][B]:SIG[@SECONDS]`: a signal's name (with or without SIG) or number, 60 s before the limit unless given."""
    match = re.fullmatch(r"(?:([RB]{1,2}):)?([A-Z0-9+-]+)(?:@(\d{1,5}))?", text.strip().upper(), re.ASCII)
    name = _signal_name(match[2]) if match else None
    seconds = int(match[3] or 60) if match else 0
    if match is None or name is None or seconds > 65_535:
        raise ValueError(
            f"{text[:40]!r} is not a signal; write a name and seconds before the limit, such as B:USR1@120"
        )
    return StopSignal(signal=name, before_s=float(seconds), batch_only="B" in (match[1] or ""))


def _signal_name(text: str) -> str | None:
    try:
        if text.isdecimal():
            return signal.Signals(int(text)).name.removeprefix("SIG")
        return signal.Signals["SIG" + text.upper().removeprefix("SIG")].name.removeprefix("SIG")
    except (ValueError, KeyError):
        return None


_JOB = re.compile(r"\d{1,15}(?:_(?:\d{1,15}|\*))?", re.ASCII)


def parse_dependency(text: str) -> tuple[tuple[Dependency, ...], tuple[str, ...]]:
    """Slurm's list, all of which must hold; and the parts that are known and not understood here.

    Slurm's words in any case; a job's id alone is `afterany`, and `37_*` are all tasks of array 37.  Raises ValueError for what is malformed, and for what would start the job too early if it were left out.
    """
    found: list[Dependency] = []
    notes: list[str] = []
    if "?" in text:
        raise ValueError("alternatives (?) are not read here; separate with commas what must all hold")
    for part in text.split(","):
        kind, _, jobs = part.strip().partition(":")
        if _JOB.fullmatch(part.strip()):
            kind, jobs = DependencyKind.AFTER_ANY, kind
        kind = kind.lower()
        if kind == "singleton" and not jobs:
            notes.append("singleton is not understood here; name the jobs to wait for, as in afterany:37")
            continue
        if kind not in set(DependencyKind):
            words = ", ".join(f"{k}:ID" for k in DependencyKind)
            raise ValueError(f"{part[:40]!r} is not a dependency that is read here; {words} are")
        for job in jobs.split(":"):
            if not _JOB.fullmatch(job):
                hint = "; a delay in minutes is not read here" if "+" in job else ""
                raise ValueError(f"{job[:40]!r} is not a job's id{hint}; write {kind}:37 or {kind}:37_4")
            found.append(Dependency(job=job.removesuffix("_*"), kind=DependencyKind(kind)))
    return tuple(found), tuple(notes)


_EXPORTS = re.compile(r"""((?:'[^']*'|"[^"]*"|[^,])*)(?:,|\Z)""")


def _bare(part: str) -> str:
    """Without the quotes that are around all of it."""
    return part[1:-1] if re.fullmatch(r"""'[^']*'|"[^"]*\"""", part) else part


def parse_export(text: str) -> tuple[Export, Mapping[str, str]]:
    """`ALL`, `NONE`, names, and NAME=VALUE, separated by commas: what is taken along, and what is set.

    As Slurm reads it: a comma within quotes separates nothing, and the quotes stay in the value unless they are around
    the whole of NAME=VALUE.
    """
    everything, names, values = False, [], {}
    parts = [part for part in _EXPORTS.findall(text) if part]
    for part in (_bare(part) for part in parts or [""]):
        name, equals, value = part.partition("=")
        if part.upper() == "ALL":
            everything = True
        elif part.upper() in {"NONE", "NIL"}:
            continue
        elif not re.fullmatch(r"[^\s=\0]+", name):
            raise ValueError(
                f"{part[:40]!r} is not a variable; write ALL, NONE, NAME or NAME=VALUE, separated by commas"
            )
        elif equals:
            values[name] = value
        else:
            names.append(name)
    return Export(all=everything, names=() if everything else tuple(names)), values
