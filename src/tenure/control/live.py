"""The jobs that have not ended, as the loops keep them in memory: small, and rebuilt from the ledger at start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tenure.domain.ids import CardId, Instant, JobId, RunId, run_id
from tenure.domain.job import JobSpec
from tenure.domain.lifecycle import JobState
from tenure.domain.workload import Admission, Card, Workload
from tenure.ledger import JobRow

from .workloads import admission_from_json, workload

__all__ = ["Live"]


@dataclass(slots=True)
class Live:
    """What the loops last saw of one job.  `revision` fences every write that they make from it."""

    id: JobId
    array_id: JobId | None
    array_index: int | None
    array_limit: int | None
    spec: JobSpec  # shared by the tasks of an array: their index stands beside it
    env_digest: str | None
    priority: int
    submitted_at: Instant
    retry_of: JobId | None
    state: JobState
    revision: int
    attempts: int
    held: bool
    reason: str
    not_before: Instant | None
    launch_failures: int
    retries_used: int
    started_at: Instant | None
    admission: Admission | None = None
    priority_class: str | None = None  # the one that it has, also where the policy's default gave it
    in_engine: bool = False
    message: str = ""
    survivors_told: int = 0
    ordered_at: Instant | None = None  # its place in line, where that is not its submission's
    code_told: int = 0  # the attempt whose code is known to have changed, and was told
    fingerprint: Mapping[str, object] = field(default_factory=dict)  # of the working tree, at submit
    asked_at: int = 0  # when the backend was last asked for something, steady time
    avoid: frozenset[CardId] = frozenset()  # cards that somebody else has claimed
    launched: bool = False  # the backend was asked to start the current attempt

    @classmethod
    def of(cls, row: JobRow, spec: JobSpec) -> Live:
        return cls(
            id=row.id,
            array_id=row.array_id,
            array_index=row.array_index,
            array_limit=row.array_limit,
            spec=spec,
            env_digest=row.env_digest,
            priority=row.priority,
            priority_class=row.priority_class,
            submitted_at=row.submitted_at,
            retry_of=row.retry_of,
            state=row.state,
            revision=row.revision,
            attempts=row.attempts,
            held=row.held,
            reason=row.reason,
            not_before=row.not_before,
            launch_failures=row.launch_failures,
            retries_used=row.retries_used,
            started_at=row.started_at,
            message=row.message,
            fingerprint=row.fingerprint,
            admission=admission_from_json(row.reservation) if row.reservation else None,
        )

    def saw(self, row: JobRow) -> None:
        """Take over what a write of ours, or somebody else's, made of the row."""
        self.state, self.revision, self.attempts = row.state, row.revision, row.attempts
        self.held, self.reason, self.not_before = row.held, row.reason, row.not_before
        self.launch_failures, self.retries_used = row.launch_failures, row.retries_used
        self.started_at, self.message = row.started_at, row.message

    def workload(self, cards: Sequence[Card]) -> Workload:
        # Tasks of an array were handed in together; their index keeps them in order, a microsecond apart.
        created = Instant((self.ordered_at or self.submitted_at) + (self.array_index or 0))
        made = workload(self.id, self.spec, priority=self.priority, created_at=created, cards=cards)
        return replace(made, avoid=self.avoid) if self.avoid else made

    @property
    def current_run(self) -> RunId:
        return run_id(self.id, self.attempts)
