"""What the ledger remembers of wakes: how many there were of each model, and the last one step by step.

Read once, when the platform starts: a wake is a job, and its steps are in the job's own lines of the diary.  When a model
last answered is in the gateway's journal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenure.domain.events import Event, EventKind
from tenure.domain.ids import Instant
from tenure.domain.model import ModelState
from tenure.ledger import JobFilter, JobRow, Ledger
from tenure.sdk.record import parse_time

from .model_jobs import MODEL, PROJECT, owner

__all__ = ["BACK", "STEPS", "Wakes", "last_inferences", "remembered"]

STEPS = ("asked_at", "admitted_at", "started_at", "listening_at", "ready_at", "first_token_at")
"""The steps of a wake, in their order.  One that has not come is not there."""

BACK = "it comes back after it had made room"
PAGE = 1000
TAIL = 256 << 10  # bytes of the journal: about a thousand requests


@dataclass(frozen=True, slots=True)
class Wakes:
    count: int
    last: Mapping[str, Any]  # `STEPS` as instants, and cause, by, job_id


def remembered(ledger: Ledger, *, before: Instant) -> Mapping[str, Wakes]:
    """By model.  Attempts since `before` are left out: whether they are to be is not decided yet."""
    counts: dict[str, int] = {}
    newest: dict[str, JobRow] = {}
    cursor: str | None = None
    while True:
        page = ledger.jobs(JobFilter(project=PROJECT, owner=owner()), limit=PAGE, cursor=cursor)
        for row in page.items:
            name = row.labels.get(MODEL)
            if name is not None:
                counts[name] = counts.get(name, 0) + 1
                newest.setdefault(name, row)
        cursor = page.next
        if cursor is None:
            return {name: Wakes(count, _steps(ledger, newest[name], before)) for name, count in counts.items()}


def last_inferences(journal: Path) -> Mapping[str, Instant]:
    """When each model last answered, by the end of the gateway's journal; who is not in it was long ago, or never."""
    found: dict[str, Instant] = {}
    try:
        with journal.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            lines = file.read().splitlines()
    except OSError:
        return found
    for raw in lines:
        try:
            line = json.loads(raw)
            if line["run"] is not None:
                found[str(line["model"])] = Instant(int(line["at"] * 1e6))
        except (ValueError, KeyError, TypeError):
            continue  # the first one of these is torn, and others may be foreign
    return found


def _steps(ledger: Ledger, row: JobRow, before: Instant) -> dict[str, Any]:
    kinds = [EventKind.MODEL_WOKEN, EventKind.MODEL_CHANGED, EventKind.MODEL_ANSWERED]
    events = ledger.events(job_id=row.id, kinds=kinds, limit=200, newest=True)[::-1]
    woken = next((event for event in events if event.kind is EventKind.MODEL_WOKEN), None)
    steps: dict[str, Any] = {
        "asked_at": woken.at if woken is not None else row.submitted_at,
        "cause": str(woken.data.get("cause", "")) if woken is not None else "",
        "by": str(woken.data.get("by", "")) if woken is not None else "",
        "job_id": row.id,
    }
    attempts = [attempt for attempt in ledger.attempts(row.id) if attempt.created_at < before]
    if not attempts:
        return steps
    last = attempts[-1]
    if last.number > 1:
        queued = [e for e in events if e.data.get("state") == ModelState.QUEUED and e.at <= last.created_at]
        steps |= {"asked_at": queued[-1].at if queued else last.created_at, "cause": BACK, "by": "tenure"}
    steps["admitted_at"] = last.created_at
    if last.started_at is not None:
        steps["started_at"] = last.started_at
    for event in events:
        if event.run_id == last.run_id:
            steps = _of_event(event) | steps  # the first time counts: a daemon that adopts it says so again
    return steps


def _of_event(event: Event) -> dict[str, Instant]:
    if event.kind is EventKind.MODEL_ANSWERED:
        return {"first_token_at": event.at}
    if event.data.get("state") != ModelState.READY:
        return {}
    said = {step: parse_time(event.data.get(step)) for step in ("listening_at", "ready_at")}
    return {"ready_at": event.at} | {step: Instant(at) for step, at in said.items() if at is not None}
