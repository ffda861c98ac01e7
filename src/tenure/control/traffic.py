"""What came to the platform in the ledger's last days, as a replay needs it (`traces` reads the same from a file).

A `Past` says nothing of any policy: its priority class is looked up, and its queue found, in the policy that a replay
is played under.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tenure.domain.events import EventKind
from tenure.domain.ids import Instant, JobId
from tenure.domain.job import JobSpec
from tenure.domain.lifecycle import JobState
from tenure.ledger import AttemptRow, JobFilter, JobRow, Ledger

from .gates import WAITS_OUTSIDE
from .histories import busy_us, history
from .specs import SpecStore

__all__ = ["Past", "Traffic", "from_ledger", "jobs_between", "jobs_in_words"]

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
    traffic.notes += [f"{jobs_in_words(n)} {text}" for text, n in notes.items()]
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
    arrived = max(since, created, spec.begin_at or since)
    if spec.after or row.array_limit is not None:
        notes["that waited for other jobs or an array's limit: let in when submitted"] += 1
    stood = row.started_at is not None and row.started_at < since
    past = Past(
        id=row.id,
        spec=spec,
        created_at=created,
        arrived_at=arrived,
        runtime_us=None,
        started_at=row.started_at,
        stood=stood,
    )
    if ended and row.started_at is None:
        if begun is not None:
            notes["that could not be launched: left out"] += 1
            return None
        notes["that never started (cancelled or given up in the queue): played as waiting until then"] += 1
        return replace(past, runtime_us=_guess(ledger, row, spec, guesses), cancelled_at=row.ended_at)
    if row.state is JobState.QUEUED and not row.attempts:
        if row.held or row.reason in WAITS_OUTSIDE:
            notes["held, or waiting for a time or another job: left out"] += 1
            return None
        runtime = _guess(ledger, row, spec, guesses)
        if runtime is None:
            notes["waiting with neither a time limit nor a history: without an end once started"] += 1
        return replace(past, runtime_us=runtime)
    if ended:
        return replace(past, runtime_us=_within(row, several, since, row.ended_at or now))
    behind, ran = _ran(several.get(row.id, ()), since, now)
    guess = _guess(ledger, row, spec, guesses)
    if guess is None:
        notes["still running with neither a time limit nor a history: without an end in the replay"] += 1
        return past
    return replace(past, runtime_us=max(guess - behind, ran))


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


def jobs_in_words(n: int) -> str:
    return f"{n} job" if n == 1 else f"{n} jobs"
