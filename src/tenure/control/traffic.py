"""What came to the platform, as a replay needs it: from the ledger's last days, or from a trace file.

A `Past` says nothing of any policy: its priority class is looked up, and its queue found, in the policy that a replay
is played under.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenure.domain.amounts import parse_bytes
from tenure.domain.errors import InvalidRequest
from tenure.domain.events import EventKind
from tenure.domain.ids import Instant, JobId
from tenure.domain.job import JobSpec
from tenure.domain.lifecycle import JobState
from tenure.ledger import AttemptRow, JobFilter, JobRow, Ledger

from .clock import from_wire
from .histories import busy_us, history
from .specs import SpecStore

__all__ = ["Past", "Traffic", "from_ledger", "from_trace", "jobs_between"]

PAGE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """One job that came.  `started_at` is what really happened, where that is known."""

    id: JobId
    spec: JobSpec
    arrived_at: Instant  # when the replay lets it in
    created_at: Instant  # when it was submitted: its place in line
    runtime_us: int | None
    cancelled_at: Instant | None = None
    started_at: Instant | None = None
    stood: bool = False  # it held the card when the replay begins


@dataclass(slots=True)
class Traffic:
    """All of it, in the order of arrival; `notes` are what the replay cannot reproduce, in sentences."""

    jobs: list[Past]
    since: Instant
    until: Instant
    source: str
    notes: list[str] = field(default_factory=list)
    ends: bool = True  # the replay ends at `until`; a trace is played to its end


def from_ledger(ledger: Ledger, specs: SpecStore, *, since: Instant, now: Instant) -> Traffic:
    """Everything that was submitted, waited or ran between `since` and `now`."""
    rows = jobs_between(ledger, since)
    several = ledger.attempts_of(
        [row.id for row in rows if row.attempts > 1 or (row.attempts and row.state is not JobState.ENDED)]
    )
    guesses: dict[str, tuple[int, ...]] = {}
    notes: Counter[str] = Counter()
    jobs = []
    for row in rows:
        spec = specs.of(row)
        past = _past(ledger, row, spec, several, guesses, notes, since=since, now=now)
        if past is not None:
            jobs.append(past)
    jobs.sort(key=lambda p: (p.arrived_at, not p.stood, p.created_at, p.id))
    traffic = Traffic(jobs=jobs, since=since, until=now, source="the ledger")
    traffic.notes += [f"{n} {_plural(n)} {text}" for text, n in notes.items()]
    return traffic


def jobs_between(ledger: Ledger, since: Instant) -> list[JobRow]:
    """Jobs submitted after `since`, those that ended after it, and those that have not ended; oldest first."""
    found: dict[JobId, JobRow] = {}
    cursor: str | None = None
    while True:
        page = ledger.jobs(JobFilter(), limit=PAGE, cursor=cursor)
        found.update((row.id, row) for row in page.items if row.submitted_at >= since)
        cursor = page.next
        if cursor is None or not page.items or page.items[-1].submitted_at < since:
            break
    found.update((row.id, row) for row in ledger.live_jobs())
    older = [job for job in _ended_since(ledger, since) if job not in found]
    found.update(ledger.jobs_by_id(older))
    return sorted(found.values(), key=lambda row: row.seq)


def _ended_since(ledger: Ledger, since: Instant) -> Iterator[JobId]:
    after = _event_before(ledger, since)
    while True:
        events = ledger.events(after=after, kinds=[EventKind.JOB_ENDED], limit=5000)
        for event in events:
            if event.job_id is not None and event.at >= since:
                yield event.job_id
        if len(events) < 5000:
            return
        after = events[-1].id


def _event_before(ledger: Ledger, since: Instant) -> int:
    """An event id before which everything is older: the diary is in the order of commits, so a search by halves."""
    low, high = 0, ledger.last_event_id()
    while low < high:
        middle = (low + high) // 2
        following = ledger.events(after=middle, limit=1)
        if following and following[0].at < since:
            low = middle + 1
        else:
            high = middle
    return max(0, low - 1)


def _past(
    ledger: Ledger,
    row: JobRow,
    spec: JobSpec,
    several: Mapping[str, Sequence[AttemptRow]],
    guesses: dict[str, tuple[int, ...]],
    notes: Counter[str],
    *,
    since: Instant,
    now: Instant,
) -> Past | None:
    ended = row.state is JobState.ENDED
    created = Instant(row.submitted_at + (row.array_index or 0))
    begun = row.admitted_at
    arrived = max(since, created, spec.begin_at or 0)
    if spec.after or row.array_limit is not None:
        notes["that waited for other jobs or an array's limit: let in when submitted"] += 1
    stood = row.started_at is not None and row.started_at < since
    past = {
        "id": row.id, "spec": spec, "created_at": created, "arrived_at": arrived, "started_at": row.started_at,
        "stood": stood,
    }  # fmt: skip
    if ended and row.started_at is None:
        if begun is not None:
            notes["that could not be launched: left out"] += 1
            return None
        notes["that never started (cancelled or given up in the queue): played as waiting until then"] += 1
        return Past(**past, runtime_us=_guess(ledger, row, spec, guesses), cancelled_at=row.ended_at)  # type: ignore[arg-type]
    if row.state is JobState.QUEUED and not row.attempts:
        if row.held or row.reason in (
            "WaitingForDependency",
            "WaitingForBeginTime",
            "WaitingForArrayLimit",
            "WaitingForWindow",
        ):
            notes["held, or waiting for a time or another job: left out"] += 1
            return None
        runtime = _guess(ledger, row, spec, guesses)
        if runtime is None:
            notes["waiting with neither a time limit nor a history: without an end once started"] += 1
        return Past(**past, runtime_us=runtime)  # type: ignore[arg-type]
    if ended:
        return Past(**past, runtime_us=_within(row, several, since, row.ended_at or now))  # type: ignore[arg-type]
    behind, ran = _ran(several.get(row.id, ()), since, now)
    guess = _guess(ledger, row, spec, guesses)
    if guess is None:
        notes["still running with neither a time limit nor a history: without an end in the replay"] += 1
        return Past(**past, runtime_us=None)  # type: ignore[arg-type]
    return Past(**past, runtime_us=max(guess - behind, ran))  # type: ignore[arg-type]


def _within(row: JobRow, several: Mapping[str, Sequence[AttemptRow]], since: Instant, end: Instant) -> int:
    """Runtime after `since`: what an older job ran before the replay begins is behind it."""
    if row.attempts > 1 and row.id in several:
        return sum(
            max(0, a.ended_at - max(since, a.started_at))
            for a in several[row.id]
            if a.started_at is not None and a.ended_at is not None
        )
    return max(0, min(busy_us(row, {}), end - since))


def _ran(attempts: Sequence[AttemptRow], since: Instant, now: Instant) -> tuple[int, int]:
    """How long a job that has not ended ran before `since`, and after it."""
    before = after = 0
    for a in attempts:
        if a.started_at is not None:
            end = a.ended_at if a.ended_at is not None else now
            before += max(0, min(end, since) - a.started_at)
            after += max(0, end - max(since, a.started_at))
    return before, after


def _guess(ledger: Ledger, row: JobRow, spec: JobSpec, guesses: dict[str, tuple[int, ...]]) -> int | None:
    """The middle of its name's history, at most its time limit; or the limit; or None."""
    limit = int(spec.time_limit_s * 1e6) if spec.time_limit_s else None
    if row.name not in guesses:
        guesses[row.name] = history(ledger, row.name)
    runs = guesses[row.name]
    if not runs:
        return limit
    middle = runs[len(runs) // 2]
    return middle if limit is None else min(limit, middle)


def _plural(n: int) -> str:
    return "job" if n == 1 else "jobs"


# -- trace files

FIELDS = {
    "submitted_at", "runtime_s", "queue", "namespace", "priority_class", "shares", "whole", "gpu_memory", "cpus", "memory", "processes",
    "min_processes", "name", "id", "cancelled_at",
}  # fmt: skip


def from_trace(text: str, *, file: str = "trace") -> Traffic:
    """A workload trace: JSON lines (docs/whatif.md).  Raises InvalidRequest naming the line and the field."""
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
        traffic.notes.append(f"{endless} {_plural(endless)} without runtime_s: without an end once started")
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
