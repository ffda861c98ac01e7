"""A workload trace from a file, for a replay: JSON lines, a job each (docs/whatif.md)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tenure.domain.amounts import parse_bytes
from tenure.domain.errors import InvalidRequest
from tenure.domain.ids import Instant, JobId
from tenure.domain.job import JobSpec

from .clock import from_wire
from .traffic import Past, Traffic, jobs_in_words

__all__ = ["from_trace"]

FIELDS = {
    "submitted_at", "runtime_s", "queue", "namespace", "priority_class", "shares", "whole", "gpu_memory", "cpus", "memory", "processes",
    "min_processes", "name", "id", "cancelled_at",
}  # fmt: skip


def from_trace(text: str, *, file: str = "trace") -> Traffic:
    """All of it, played to its end.  Raises InvalidRequest naming the line and the field."""
    jobs = [_line(number, line, file) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not jobs:
        raise InvalidRequest(f"{file} has no job in it; write one JSON object a line", field="trace")
    ids = Counter(p.id for p in jobs)
    twice = next((job for job, n in ids.items() if n > 1), None)
    if twice is not None:
        raise InvalidRequest(f"{file}: id {twice!r} is there twice; leave ids out, or make each its own", field="id")
    jobs.sort(key=lambda p: (p.arrived_at, p.id))
    traffic = Traffic(jobs=jobs, since=jobs[0].arrived_at, until=jobs[-1].arrived_at, source=file, ends=False)
    endless = sum(1 for p in jobs if p.runtime_us is None)
    if endless:
        traffic.notes.append(f"{jobs_in_words(endless)} without runtime_s: without an end once started")
    return traffic


def _line(number: int, line: str, file: str) -> Past:
    def refuse(why: str, field_: str = "trace") -> InvalidRequest:
        return InvalidRequest(f"{file}:{number}: {why}", field=field_)

    try:
        raw: Any = json.loads(line)
    except ValueError as error:
        raise refuse(f"this is no JSON: {error}") from None
    if not isinstance(raw, dict):
        raise refuse('this is not a JSON object; write {"submitted_at": …, "runtime_s": …}')
    unknown = sorted(set(raw) - FIELDS)
    if unknown:
        raise refuse(f"{unknown[0]!r} is not a field; there are {', '.join(sorted(FIELDS))}", unknown[0])

    def read(name: str, convert: Any, default: Any = None) -> Any:
        value = raw.get(name)
        if value is None:
            return default
        try:
            return convert(value)
        except (ValueError, TypeError) as error:
            raise refuse(f"{name}: {error}", name) from None

    if raw.get("submitted_at") is None:
        raise refuse("submitted_at is missing: RFC 3339, or seconds from the start of the trace", "submitted_at")
    at = read("submitted_at", _moment)
    runtime = read("runtime_s", float)
    if runtime is not None and not 0 <= runtime < 1e9:
        raise refuse(f"runtime_s {runtime} is not between 0 and 1e9", "runtime_s")
    processes = read("processes", int, 1)
    spec = JobSpec(
        name=read("name", str, ""),
        argv=("true",),
        namespace=read("namespace", str, "default"),
        queue=read("queue", str),
        priority_class=read("priority_class", str),
        shares=read("shares", int, 0),
        whole=read("whole", bool, False),
        gpu_memory=read("gpu_memory", parse_bytes, 0),
        cpus=int(read("cpus", float, 0) * 1000),
        memory=read("memory", parse_bytes, 0),
        processes=processes,
        min_processes=read("min_processes", int),
    )
    if spec.shares < 0 or processes < 1 or (spec.min_processes or 1) > processes:
        raise refuse("shares is at least 0, processes at least 1, and min_processes at most processes", "processes")
    return Past(
        id=JobId(str(raw.get("id") or number)),
        spec=spec,
        arrived_at=at,
        created_at=at,
        runtime_us=None if runtime is None else int(runtime * 1e6),
        cancelled_at=read("cancelled_at", _moment),
    )


def _moment(value: Any) -> Instant:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Instant(int(value * 1e6))
    return from_wire(str(value))
