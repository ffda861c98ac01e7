"""How long jobs of one name lasted, from the ledger: what expectations and replays know of the future."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tenure.domain.lifecycle import JobState, Outcome
from tenure.ledger import AttemptRow, JobFilter, JobRow, Ledger

__all__ = ["MAX_NAMES", "busy_us", "histories", "history"]

RUNS = 32  # the newest ended jobs of a name; older ones say less
MAX_NAMES = 200  # looked up for one question


def histories(ledger: Ledger, names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Sorted runtimes in microseconds for each name, of the first `MAX_NAMES` of them; one indexed query a name."""
    return {name: history(ledger, name) for name in list(dict.fromkeys(names))[:MAX_NAMES]}


def history(ledger: Ledger, name: str) -> tuple[int, ...]:
    """Of jobs that completed; where none did, of those that failed.  What was cancelled or interrupted says nothing."""
    if "*" in name:  # a filter reads it as "anything"
        return ()
    rows = ledger.jobs(JobFilter(name=name, states=frozenset({JobState.ENDED})), limit=RUNS).items
    ran = [row for row in rows if row.started_at is not None and row.ended_at is not None]
    chosen = [row for row in ran if row.outcome is Outcome.COMPLETED] or [
        row for row in ran if row.outcome is Outcome.FAILED
    ]
    several = ledger.attempts_of([row.id for row in chosen if row.attempts > 1])
    return tuple(sorted(busy_us(row, several) for row in chosen))


def busy_us(row: JobRow, several: Mapping[str, Sequence[AttemptRow]]) -> int:
    """How long its processes ran, over all its attempts."""
    if row.attempts <= 1 or row.id not in several:
        return max(0, (row.ended_at or 0) - (row.started_at or 0))
    return sum(
        max(0, attempt.ended_at - attempt.started_at)
        for attempt in several[row.id]
        if attempt.started_at is not None and attempt.ended_at is not None
    )
