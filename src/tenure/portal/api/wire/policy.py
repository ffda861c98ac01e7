"""The policy on the wire, what would become of another one, and the end of the daemon."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from .base import Loose, Strict

__all__ = [
    "CheckPolicy",
    "Checked",
    "PolicyFile",
    "PolicyView",
    "StopDaemon",
    "Tried",
    "TriedQueue",
    "TriedSide",
    "TryPolicy",
]


class PolicyView(Loose):
    yaml: str
    files: list[str]
    problems: list[dict[str, Any]]


class Checked(Loose):
    ok: bool
    problems: list[dict[str, Any]]


class PolicyFile(Strict):
    name: str
    text: str


class CheckPolicy(Strict):
    files: list[PolicyFile]


class TryPolicy(Strict):
    files: list[PolicyFile]
    since_s: float = Field(default=7 * 86_400, gt=0, le=366 * 86_400, description="how far back the replay begins")


class TriedQueue(Loose):
    """Of one cluster queue.  Times in seconds; `use` in share-seconds and GiB-seconds, and as a part of nominal."""

    jobs: int
    started: int
    wait_p50_s: float | None
    wait_p90_s: float | None
    wait_max_s: float | None
    preempted: int
    preempting: int
    use: dict[str, float | None]
    unmet: dict[str, float]


class TriedSide(Loose):
    queues: dict[str, TriedQueue]
    total: TriedQueue
    seconds: float
    admissions: int
    cycles: int


class Tried(Loose):
    """Two replays of the same jobs.  `notes`: what could not be played as it happened."""

    source: str
    since: str | None
    until: str | None
    jobs: int
    resume: str
    notes: list[str]
    fidelity: dict[str, float] | None
    before: TriedSide
    after: TriedSide


class StopDaemon(Strict):
    keep_jobs: bool = Field(default=False, description="Supervisors and their jobs go on.")
