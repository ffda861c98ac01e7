"""Law 1: the diary folded from its first line gives the rows of jobs, attempts and windows, exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tenure.domain.events import Event
from tenure.domain.ids import JobId, RunId

from .attempts import ATTEMPT_COLUMNS
from .jobs import JOB_COLUMNS
from .rows import AttemptRow, JobRow
from .windows import WINDOW_COLUMNS, WINDOW_KINDS, WindowRow

__all__ = ["Folded", "fold"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    jobs: Mapping[JobId, JobRow]
    attempts: Mapping[RunId, AttemptRow]
    windows: Mapping[str, WindowRow]


def fold(events: Iterable[Event]) -> Folded:
    """The rows that the events tell of.  `events` are in order of their id, from the first of each job."""
    jobs: dict[JobId, dict[str, Any]] = {}
    attempts: dict[RunId, dict[str, Any]] = {}
    windows: dict[str, dict[str, Any]] = {}
    for event in events:
        if not event.changes:
            continue
        if event.kind in WINDOW_KINDS:
            windows.setdefault(str(event.data["window"]), {}).update(event.changes)
        elif event.run_id is not None:
            attempts.setdefault(event.run_id, {}).update(event.changes)
        elif event.job_id is not None:
            jobs.setdefault(event.job_id, {}).update(event.changes)
    return Folded(
        jobs={key: JobRow(**JOB_COLUMNS.typed(values)) for key, values in jobs.items()},
        attempts={key: AttemptRow(**ATTEMPT_COLUMNS.typed(values)) for key, values in attempts.items()},
        windows={key: WindowRow(**WINDOW_COLUMNS.typed(values)) for key, values in windows.items()},
    )
