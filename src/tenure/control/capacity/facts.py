"""What the capacity report is made from: jobs, attempts and readings of one stretch of time, cut into equal slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tenure.domain.ids import Instant
from tenure.domain.job import JobSpec
from tenure.domain.lifecycle import JobState
from tenure.domain.policy import Policy
from tenure.domain.reasons import PendingReason
from tenure.domain.workload import Card
from tenure.ledger import AttemptRow, JobRow

from ..gates import WAITS_OUTSIDE
from ..samples import Reading

__all__ = ["KEPT_OUT", "SLOTS", "Facts", "Hold", "Slots", "Wait", "holds_in", "seconds", "waits_in"]

SLOTS = 168
KEPT_OUT = WAITS_OUTSIDE | {PendingReason.SUSPENDED, PendingReason.ON_HOLD}
"""Reasons for waiting that are not the want of quota or of a place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that the report is made from."""

    since: Instant
    now: Instant
    policy: Policy
    cards: tuple[Card, ...]
    card_source: str
    rows: Sequence[JobRow]
    attempts: Mapping[str, Sequence[AttemptRow]]
    specs: Mapping[str, JobSpec]  # by digest
    readings: Iterable[Reading]

    def spec_of(self, row: JobRow) -> JobSpec:
        return self.specs[row.spec_digest]


@dataclass(slots=True)
class Slots:
    """Means over equal parts of the window."""

    since: int
    width: float
    sums: list[float] = field(default_factory=lambda: [0.0] * SLOTS)

    def add(self, begin: int, end: int, amount: float) -> None:
        begin = max(begin, self.since)
        first = int((begin - self.since) / self.width)
        for slot in range(first, SLOTS):
            left = self.since + slot * self.width
            overlap = min(end, left + self.width) - max(begin, left)
            if overlap <= 0:
                if left >= end:
                    return
                continue
            self.sums[slot] += amount * overlap / self.width

    def values(self, digits: int = 3) -> list[float]:
        return [round(v, digits) for v in self.sums]


@dataclass(frozen=True, slots=True)
class Hold:
    """From an attempt's admission to its end."""

    begin: int
    end: int
    queue: str
    places: tuple[tuple[str, int, int], ...]  # card, shares, bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """One stretch of a job's waiting."""

    begin: int
    end: int | None  # None: it still waits
    row: JobRow


def holds_in(facts: Facts) -> list[Hold]:
    """Every stretch in which an attempt held places on cards."""
    rows = {str(row.id): row for row in facts.rows}
    found = []
    for job, attempts in facts.attempts.items():
        for attempt in attempts:
            end = attempt.ended_at if attempt.ended_at is not None else facts.now
            places = attempt.placement if isinstance(attempt.placement, list) else []
            if places and end > facts.since:
                parts = tuple((str(p["card"]), int(p["shares"]), int(p["memory"])) for p in places)
                found.append(Hold(attempt.created_at, end, rows[job].cluster_queue or "", parts))
    return found


def waits_in(facts: Facts) -> list[Wait]:
    """Every stretch of waiting: to the first attempt, and between attempts."""
    found = []
    for row in facts.rows:
        begin = row.submitted_at
        for attempt in facts.attempts.get(row.id, ()):
            found.append(Wait(begin, attempt.created_at, row))
            begin = Instant(attempt.ended_at if attempt.ended_at is not None else facts.now)
        if row.state is JobState.QUEUED:
            found.append(Wait(begin, None, row))
        elif row.state is JobState.ENDED and not row.attempts and row.ended_at is not None:
            found.append(Wait(begin, row.ended_at, row))
    return [w for w in found if w.end is None or w.end > facts.since]


def seconds(us: int) -> float:
    """Of microseconds, to the thousandth."""
    return round(us / 1e6, 3)
