"""Slurm's array notation: `1-10%3`, `0,2,4-8:2`."""

from __future__ import annotations

import re

from tenure.domain.job import ArraySpec

__all__ = ["MAX_TASKS", "format_indices", "parse_array"]

MAX_TASKS = 100_000
"""Tasks of one array, and one more than the highest index: beyond, a program that submits in parts serves better."""

_MOST_NAMED = (
    10 * MAX_TASKS
)  # indices in all: ranges may overlap, and a long text of wide ones would take hours to read
_PART = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?::(\d{1,18}))?)?", re.ASCII)


def parse_array(text: str) -> ArraySpec:
    """Indices in ascending order, each once, and the `%` limit; `[1-10]` is `1-10`.  Raises ValueError with what would work."""
    raw = text.strip()
    body, percent, limit_text = raw.partition("%")
    limit: int | None = None
    if percent:
        if not re.fullmatch(r"[1-9]\d{0,8}", limit_text, re.ASCII):
            raise ValueError(f"{limit_text[:20]!r} after % is not a limit; write a number of at least 1, as in 1-10%3")
        limit = int(limit_text)
    if body.startswith("[") and body.endswith("]"):
        body = body[1:-1]
    indices: set[int] = set()
    named = 0
    for part in body.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{part[:40]!r} is not an array; write indices and ranges, such as 1-10%3 or 0,2,4-8:2")
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        step = 1 if match[3] is None else int(match[3])
        if step < 1:
            raise ValueError(f"{part[:40]!r} has a step of 0; a step is at least 1")
        if last < first:
            raise ValueError(f"{part[:40]!r} goes down; write the lower index first")
        if last >= MAX_TASKS:
            raise ValueError(f"index {last} is too high; at most {MAX_TASKS - 1}")
        named += (last - first) // step + 1
        if named > _MOST_NAMED:
            raise ValueError(f"more than {_MOST_NAMED} indices are named; name each once")
        indices.update(range(first, last + 1, step))
    return ArraySpec(indices=tuple(sorted(indices)), limit=limit)


def format_indices(indices: tuple[int, ...]) -> str:
    """The shortest of Slurm's spellings that uses ranges without a step: `0-3,7`."""
    parts: list[str] = []
    at = 0
    while at < len(indices):
        end = at
        while end + 1 < len(indices) and indices[end + 1] == indices[end] + 1:
            end += 1
        parts.append(str(indices[at]) if end == at else f"{indices[at]}-{indices[end]}")
        at = end + 1
    return ",".join(parts)
