"""Runs and the diary on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from .base import Loose, Outcome

__all__ = ["Event", "RunPage", "RunRecord", "RunRow", "Series"]


class RunRow(Loose):
    run_id: str
    name: str
    job_id: str | None
    project: str
    outcome: Outcome | None
    opened_at: datetime | None
    closed_at: datetime | None
    retry_of: str | None
    results: dict[str, Any]
    config: dict[str, Any]


class RunPage(Loose):
    items: list[RunRow]
    next: str | None


class RunRecord(Loose):
    """The record that an attempt wrote of itself."""

    run_id: str
    job_id: str | None
    state: Literal["open", "closed"]
    outcome: Outcome | None
    config: dict[str, Any]
    results: dict[str, Any]
    code: dict[str, Any]
    environment: dict[str, Any]


class Series(Loose):
    """One metric: `x` is the step where the run gave one, the line's number otherwise.  Thinned to 2000 points at most."""

    x: list[float]
    y: list[float | None]


class Event(Loose):
    """One line of the diary.  Over SSE `id:` is its id and `event:` its kind."""

    id: int
    at: datetime
    kind: str = Field(examples=["JobPreempted"])
    job_id: str | None
    run_id: str | None
    message: str
    changes: dict[str, Any] = Field(description="The fields of the job or attempt that it set.")
    data: dict[str, Any]
