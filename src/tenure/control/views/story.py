"""A job's life phase by phase, read off its diary: what it waited for and how long, who took its place, what was lost.

The diary is kept for ever, so this can be told of any job at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from tenure.domain.events import Event, EventKind
from tenure.domain.ids import Instant
from tenure.ledger import AttemptRow, JobRow, Ledger
from tenure.sdk import record as records

from ..clock import from_wire, wire

__all__ = ["phases"]

EVENTS = 5000
_STATES = {
    EventKind.JOB_SUBMITTED: "waited",
    EventKind.JOB_PENDING: "waited",
    EventKind.JOB_HELD: "waited",
    EventKind.JOB_RELEASED: "waited",
    EventKind.JOB_REQUEUED: "waited",
    EventKind.JOB_ADMITTED: "was starting",
    EventKind.JOB_CHECKED: "was starting",
    EventKind.JOB_STARTED: "ran",
    EventKind.JOB_PREEMPTED: "was leaving",
    EventKind.JOB_EVICTED: "was leaving",
    EventKind.JOB_CANCEL_REQUESTED: "was leaving",
}
_TAKEN = (EventKind.JOB_PREEMPTED, EventKind.JOB_EVICTED)


def phases(ledger: Ledger, row: JobRow, runs_dir: Path, *, now: Instant) -> list[dict[str, Any]]:
    """Oldest first: `{phase, reason, from, to, seconds, attempt, taken_by, rule, lost_s}`; `to` is None for the present.

    `reason` says what it waited for.  `taken_by` and `rule` stand beside a run that was made to go, and `lost_s` is how
    much of it has to be done again: since its last checkpoint, or all of it.  None where nothing was taken, or nobody knows.
    """
    told = _spans(ledger.events(job_id=row.id, kinds=[*_STATES, EventKind.JOB_ENDED], limit=EVENTS))
    attempts = {attempt.number: attempt for attempt in ledger.attempts(row.id)}
    _as_it_was(told, attempts)
    for span in told:
        end = span.pop("until")
        begin = span.pop("since")
        span |= {"from": wire(begin), "to": wire(end), "seconds": ((end if end is not None else now) - begin) / 1e6}
        if span["rule"] is not None and end is not None:
            span["lost_s"] = _lost(attempts.get(span["attempt"]), runs_dir, begin, end)
    return told


def _as_it_was(told: list[dict[str, Any]], attempts: Mapping[int, AttemptRow]) -> None:
    """The diary says when a start and an end were heard of, which is late where no daemon ran; the attempt knows when they were."""
    attempt: AttemptRow | None = None
    after: list[dict[str, Any] | None] = [*told[1:], None]
    for before, span in zip(told, after, strict=True):
        if before["phase"] == "ran":
            attempt = attempts.get(before["attempt"])
        follows = span["phase"] if span is not None else ""
        if span is not None and follows == "ran":
            begun = attempts.get(span["attempt"])
            _move(before, span, None if begun is None else begun.started_at)
        elif before["phase"] in ("ran", "was leaving") and follows != "was leaving":
            _move(before, span, None if attempt is None else attempt.ended_at)


def _move(before: dict[str, Any], span: dict[str, Any] | None, at: Instant | None) -> None:
    """The border between two spans; not past either's other end, for clocks do jump."""
    if at is not None and before["until"] is not None and before["since"] <= at <= before["until"]:
        before["until"] = at
        if span is not None:
            span["since"] = at


def _spans(events: Iterable[Event]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for event in events:
        last = found[-1] if found else None
        if last is not None and event.kind in _TAKEN and last["phase"] == "ran":
            last["taken_by"], last["rule"] = event.data.get("by") or None, event.data.get("rule")
        phase = _STATES.get(event.kind)
        reason = str(event.changes.get("reason") or "") if phase == "waited" else ""
        if last is not None and last["until"] is None:
            if phase == last["phase"] and (event.at == last["since"] or reason in ("", last["reason"])):
                last["reason"] = reason or last["reason"]
                continue
            if phase == last["phase"] == "waited" and event.kind is EventKind.JOB_PENDING and not last["weighed"]:
                last["reason"], last["weighed"] = reason, True  # what it was queued with is not yet what it waited for
                continue
            last["until"] = event.at
        if phase is not None:
            found.append(_span(phase, reason, event))
    for span in found:
        del span["weighed"]
    return found


def _span(phase: str, reason: str, event: Event) -> dict[str, Any]:
    return {
        "phase": phase,
        "reason": reason,
        "since": event.at,
        "until": None,
        "attempt": event.data.get("attempt") if phase == "ran" else None,
        "taken_by": None,
        "rule": None,
        "lost_s": None,
        "weighed": event.kind in (EventKind.JOB_PENDING, EventKind.JOB_HELD),
    }


def _lost(attempt: AttemptRow | None, runs_dir: Path, begin: Instant, end: Instant) -> float | None:
    """Seconds of the run that its last checkpoint does not hold; None where its record is gone."""
    if attempt is None or not (directory := runs_dir / attempt.run_id).is_dir():
        return None
    checkpoints = cast("list[dict[str, Any]]", records.summary(records.read_record(directory))["checkpoints"])
    kept = [at for at in (from_wire(str(c["at"])) for c in checkpoints if c.get("at")) if begin <= at <= end]
    return (end - max(kept, default=begin)) / 1e6
