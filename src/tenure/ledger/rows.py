"""What the ledger gives and takes: rows as frozen values, and changes that say what their writer saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tenure.domain.attempt import AttemptState
from tenure.domain.errors import InvalidRequest
from tenure.domain.events import EventKind
from tenure.domain.ids import Instant, JobId, RunId
from tenure.domain.lifecycle import JobEvent, JobState, Outcome

__all__ = ["AttemptChange", "AttemptRow", "Change", "JobRow", "NewAttempt", "NewJob", "Page", "RunRow", "place_in"]

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job as it is handed in.  `spec` is its JSON text: equal texts are stored once, so keep an array's tasks equal.

    `submitted_at` None stands for the time of its writing.
    """

    id: JobId
    name: str
    spec: str
    project: str = "default"
    namespace: str = "default"
    owner: str = ""
    queue: str = "default"
    cluster_queue: str | None = None
    priority_class: str | None = None
    priority: int = 0
    array_id: JobId | None = None
    array_index: int | None = None
    array_limit: int | None = None
    env_digest: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    fingerprint: Mapping[str, object] = field(default_factory=dict)
    held: bool = False
    reason: str = ""
    message: str = ""
    not_before: Instant | None = None
    retry_of: JobId | None = None
    submitted_at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job as it stands.  `revision` counts its changes from 1; `attempts` fences writers of older attempts.

    The spec itself is shared between jobs: `Ledger.spec(row.spec_digest)`.  `reservation` is what its writer stored.
    """

    seq: int
    id: JobId
    name: str
    spec_digest: str
    submitted_at: Instant
    array_id: JobId | None = None
    array_index: int | None = None
    array_limit: int | None = None
    project: str = "default"
    namespace: str = "default"
    owner: str = ""
    state: JobState = JobState.QUEUED
    held: bool = False
    reason: str = ""
    message: str = ""
    outcome: Outcome | None = None
    exit_code: int | None = None
    signal: int | None = None
    queue: str = "default"
    cluster_queue: str | None = None
    priority_class: str | None = None
    priority: int = 0
    env_digest: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    fingerprint: Mapping[str, object] = field(default_factory=dict)
    admitted_at: Instant | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    attempts: int = 0
    run_id: RunId | None = None
    revision: int = 1
    not_before: Instant | None = None
    launch_failures: int = 0
    retries_used: int = 0
    reservation: Mapping[str, object] | None = None
    retry_of: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One guarded change of one job: what its writer saw, what happens, and the line in the diary.

    `event` None changes fields and takes no step of the lifecycle; otherwise `expect_state` is required.  `fields` are
    columns of the job other than the state and the revision, which follow by themselves.  `message` and `data` belong
    to the diary's line (to set the row's own message, name it in `fields`).
    """

    job_id: JobId
    event: JobEvent | None
    kind: EventKind
    at: Instant
    expect_state: JobState | None = None
    expect_revision: int | None = None
    expect_attempts: int | None = None
    message: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAttempt:
    """An attempt about to be asked for; it begins as `starting`."""

    run_id: RunId
    job_id: JobId
    number: int
    backend: str = "local"
    retry_of: RunId | None = None
    placement: object = None
    processes: int | None = None
    message: str = ""
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One try.  The `evicted_*` fields stay for ever: who took its place, by which rule, and when.

    `processes` is how many it has: fewer once an elastic gang gave some up, None where nobody wrote it down.
    """

    run_id: RunId
    job_id: JobId
    number: int
    created_at: Instant
    state: AttemptState = AttemptState.STARTING
    outcome: Outcome | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    message: str = ""
    started_at: Instant | None = None
    ended_at: Instant | None = None
    evicted_reason: str | None = None
    evicted_message: str | None = None
    evicted_by: str | None = None
    evicted_at: Instant | None = None
    retry_of: RunId | None = None
    backend: str = "local"
    placement: object = None
    processes: int | None = None
    failed_rank: int | None = None
    survivors: Sequence[Mapping[str, object]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptChange:
    """One guarded change of one attempt.  `fields` may name `state`, which only ever moves forward."""

    run_id: RunId
    kind: EventKind
    at: Instant
    expect_state: AttemptState | tuple[AttemptState, ...]
    fields: Mapping[str, object] = field(default_factory=dict)
    message: str = ""
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A record as far as it has been read: `read_to` bytes of it, last at `seen_at`.  The record itself is the truth."""

    run_id: RunId
    name: str
    opened_at: Instant
    seen_at: Instant
    job_id: JobId | None = None
    project: str = "default"
    run_dir: str = ""
    outcome: Outcome | None = None
    closed_at: Instant | None = None
    retry_of: RunId | None = None
    read_to: int = 0
    summary: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Row]):
    """Some rows, newest first, and the cursor of the page after (None = this was the last)."""

    items: tuple[Row, ...]
    next: str | None = None


def place_in(cursor: str, number: str) -> int:
    """`number` of a cursor as both databases can hold it.  Raises InvalidRequest for what no page has given out."""
    if not (number.isascii() and number.isdigit() and len(number) <= 18):
        raise InvalidRequest(f"{cursor[:60]!r} is not a cursor; pass back `next` as it came", field="cursor")
    return int(number)
