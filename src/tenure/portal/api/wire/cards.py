"""Cards and queues on the wire: what there is of each, who holds it, and who waits in line."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from .base import Loose, Outcome, Strict

__all__ = ["Card", "Cordon", "Drain", "Holder", "Holding", "Queue", "QueueResource", "QueuedJob"]


class Holder(Loose):
    id: str
    name: str
    owner: str
    project: str
    priority_class: str | None
    state: str
    since: datetime | None
    shares: int
    memory_declared: int
    memory_measured: int | None


class Cordon(Loose):
    """Why a card is out of the pool."""

    at: datetime
    by: str = Field(description="Who took it out; `driver` where it failed.")
    reason: str
    move: bool = Field(description="What ran there was asked to leave.")
    failed: bool


class Card(Loose):
    """A card: its shares, its memory as declared by jobs and as measured (null: not measured), and its holders."""

    id: str = Field(examples=["GPU-7c3a…", "declared-0"])
    name: str
    flavor: str
    source: Literal["measured", "declared", "none"]
    shares: int
    shares_free: int
    memory: int = Field(description="Bytes.")
    memory_free: int
    memory_declared: int
    memory_measured: int | None
    cordoned: bool
    cordon: Cordon | None = Field(description="null: it is in the pool.")
    window: dict[str, Any] | None = Field(description="The window that holds it, or for which it is being cleared.")
    windows: list[dict[str, Any]] = Field(
        description="Every claim of it that has not ended, in the order of their turns."
    )
    holders: list[Holder]


class Holding(Loose):
    """That a job held part of a card for a time."""

    card: str
    job_id: str
    run_id: str
    name: str
    priority_class: str | None
    shares: int
    memory: int
    from_: datetime = Field(alias="from")
    to: datetime | None = Field(description="null: still there.")
    outcome: Outcome | None
    ended_by: str | None = Field(description="The job that it was stopped for.")


class Drain(Strict):
    move: bool = Field(default=False, description="Ask what runs there to leave; it is queued again.")


class QueueResource(Loose):
    flavor: str
    resource: str
    nominal: int
    used: int
    borrowed: int
    lent: int
    borrowing_limit: int | None


class QueuedJob(Loose):
    id: str
    position: int | None = Field(description="From 0; null for one that is kept outside the line.")
    reason: str
    message: str


class Queue(Loose):
    """A cluster queue.  Amounts are in base units, `cpu` in thousandths."""

    name: str
    cohort: str | None
    strategy: str
    stop_policy: str
    local_queues: list[str]
    resources: list[QueueResource]
    pending: int
    jobs: list[QueuedJob] = Field(description="In order; of a very long line, its head.")
