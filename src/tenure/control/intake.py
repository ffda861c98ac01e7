"""Where submissions that are read and checked become jobs: together where they come together, each on its own word.

A group is one transaction and one flush.  Whoever is refused (a key used for something else, a cap that is reached) is
refused alone: that is found out before anything of his is written.  Where the database itself refuses a value, nothing
of the group was written, and each is tried by himself.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tenure.domain.errors import Conflict, InvalidRequest, Unavailable
from tenure.domain.ids import Instant, JobId
from tenure.domain.job import JobSpec
from tenure.ledger import JobRow, NewJob, Transaction
from tenure.manifests.wire import spec_to_json

from .caps import check_caps, is_capped
from .namings import priority_of, queue_of

if TYPE_CHECKING:
    from .app import Platform

__all__ = ["Fate", "Groups", "Intake", "Key", "Submission", "write"]

log = logging.getLogger(__name__)

AT_ONCE = 64
MOST_JOBS = 1000  # a large array is written with few others, who would wait for it

Groups = Sequence[Sequence[JobRow]]
"""The rows of each spec of one submission: more than one row where it is an array."""

Fate = Groups | Exception
"""What became of a submission: its rows, or what it was refused with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An idempotency key: whose, which, and the digest of the request that it stands for."""

    scope: str
    name: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What is left of a request once nothing about it can be wrong any more by itself.

    `specs` are settled; `codes` (their trees' fingerprints) and `retry_of` stand beside them, one each.
    """

    specs: Sequence[JobSpec]
    codes: Sequence[Mapping[str, object]]
    at: Instant
    environment: Mapping[str, str] = field(default_factory=dict)
    env_digest: str | None = None  # of an environment that is kept already
    retry_of: Sequence[JobId | None] = ()
    key: Key | None = None

    @property
    def jobs(self) -> int:
        return sum(1 if spec.array is None else len(spec.array.indices) for spec in self.specs)


def write(platform: Platform, submissions: Sequence[Submission]) -> list[Fate]:
    """What became of each, in their order; once this returns, the jobs are on disk and the loop has heard of them."""
    try:
        return _write_together(platform, submissions)
    except _Spoilt as spoilt:
        if len(submissions) > 1:
            return [fate for submission in submissions for fate in write(platform, [submission])]
        return [spoilt.cause]
    except Exception as error:
        return [error] * len(submissions)


class Intake:
    """A door that many come through at once: whoever finds nobody writing writes, for all who come meanwhile too."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._turn = threading.Lock()
        self._waiting: deque[tuple[Submission, Callable[[Fate], None]]] = deque()
        self._writing = False

    def put(self, submission: Submission, done: Callable[[Fate], None]) -> None:
        """`done` is called once, on whichever thread did the writing; it must be quick and not raise.

        Returns at once while another thread writes.
        """
        with self._turn:
            self._waiting.append((submission, done))
            if self._writing:
                return
            self._writing = True
        while group := self._next():
            fates = write(self._platform, [submission for submission, _ in group])
            for (_, tell), fate in zip(group, fates, strict=True):
                try:
                    tell(fate)
                except Exception:  # or nobody would ever write again
                    log.exception("somebody could not be told what became of a submission")

    def _next(self) -> list[tuple[Submission, Callable[[Fate], None]]]:
        group: list[tuple[Submission, Callable[[Fate], None]]] = []
        jobs = 0
        with self._turn:
            while self._waiting and len(group) < AT_ONCE and jobs < MOST_JOBS:
                group.append(self._waiting.popleft())
                jobs += group[-1][0].jobs
            self._writing = bool(group)
        return group


class _Spoilt(Exception):
    """The transaction cannot go on, and was rolled back."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _write_together(platform: Platform, submissions: Sequence[Submission]) -> list[Fate]:
    with platform.ledger.transaction(durable=True) as tx:
        group = _Group(platform, tx)
        try:
            for submission in submissions:
                group.add(submission)
            group.flush()
            tx.flush()
        except Unavailable:
            raise
        except Exception as error:
            # Only here: what fails from the commit on may have been written, and must not be written again.
            raise _Spoilt(error) from error
    fates: list[Fate] = []
    rows: list[JobRow] = []
    specs: list[JobSpec] = []
    for entry in group.entries:
        if entry.error is not None:
            fates.append(entry.error)
        elif entry.known is not None:
            fates.append([[platform.ledger.job(job) for job in ids] for ids in json.loads(entry.known)])
        else:
            fates.append(entry.groups)
            for made, spec in zip(entry.groups, entry.submission.specs, strict=True):
                rows += made
                specs += [spec] * len(made)
    if rows:
        platform.conductor.submitted(rows, specs)
    return fates


@dataclass(slots=True)
class _Entry:
    submission: Submission
    groups: list[list[JobRow]] = field(default_factory=list)
    known: str | None = None
    error: InvalidRequest | Conflict | None = None


class _Group:
    """Gathers what can be written with one statement, as long as nobody has to see it before."""

    def __init__(self, platform: Platform, tx: Transaction) -> None:
        self.entries: list[_Entry] = []
        self._platform, self._tx = platform, tx
        self._gathered: list[_Entry] = []
        self._keys: set[tuple[str, str]] = set()

    def add(self, submission: Submission) -> None:
        entry = _Entry(submission)
        self.entries.append(entry)
        key, specs = submission.key, submission.specs
        if (key is not None and (key.scope, key.name) in self._keys) or is_capped(self._platform, specs):
            self.flush()
        try:
            if key is not None:
                entry.known = self._tx.idempotent(key.scope, key.name, key.digest)
                if entry.known is not None:
                    return
                self._keys.add((key.scope, key.name))
            check_caps(self._platform, self._tx, specs)
        except (InvalidRequest, Conflict) as error:
            entry.error = error
            return
        self._gathered.append(entry)

    def flush(self) -> None:
        """Numbers are drawn here, for those alone who get jobs: a refusal leaves no gap."""
        entries, self._gathered = self._gathered, []
        if not entries:
            return
        number = self._tx.next_job_number(sum(len(entry.submission.specs) for entry in entries))
        new: list[NewJob] = []
        for entry in entries:
            number = self._make(entry.submission, number, new)
        rows = iter(self._tx.add_jobs(new, entries[-1].submission.at))
        for entry in entries:
            submission = entry.submission
            for spec in submission.specs:
                made = [next(rows) for _ in range(1 if spec.array is None else len(spec.array.indices))]
                self._platform.specs.keep(made[0].spec_digest, spec)  # before the commit: a cap may count it next
                entry.groups.append(made)
            if (key := submission.key) is not None:
                answer = json.dumps([[row.id for row in made] for made in entry.groups])
                self._tx.remember(key.scope, key.name, key.digest, answer, submission.at)

    def _make(self, submission: Submission, number: int, new: list[NewJob]) -> int:
        env_digest = submission.env_digest
        if submission.environment:
            env_digest = self._tx.put_environment(submission.environment, submission.at)
        befores = submission.retry_of or (None,) * len(submission.specs)
        for spec, code, before in zip(submission.specs, submission.codes, befores, strict=True):
            new += _new_jobs(
                self._platform,
                spec,
                number=number,
                at=submission.at,
                env_digest=env_digest,
                code=code,
                retry_of=before,
            )
            number += 1
        return number


def _new_jobs(
    platform: Platform,
    spec: JobSpec,
    *,
    number: int,
    at: Instant,
    env_digest: str | None,
    code: Mapping[str, object],
    retry_of: JobId | None,
) -> list[NewJob]:
    policy = platform.policy.current
    priority, class_name = priority_of(policy, spec)
    queue = policy.local_queues[spec.namespace, queue_of(policy, spec)]
    base = NewJob(
        id=JobId(str(number)),
        name=spec.name,
        spec=json.dumps(spec_to_json(spec), sort_keys=True, ensure_ascii=True),
        project=spec.project,
        namespace=spec.namespace,
        owner=spec.owner,
        queue=queue.name,
        cluster_queue=queue.cluster_queue,
        priority_class=class_name,
        priority=priority,
        env_digest=env_digest,
        labels=spec.labels,
        fingerprint=code,
        held=spec.suspended,
        reason="Suspended" if spec.suspended else "PendingEvaluation",
        message=f"held; `tenure release {number}` lets it be considered" if spec.suspended else "",
        submitted_at=at,
        retry_of=retry_of,
    )
    if spec.array is None:
        return [base]
    return [
        replace(
            base,
            id=JobId(f"{number}_{index}"),
            array_id=base.id,
            array_index=index,
            array_limit=spec.array.limit,
        )
        for index in spec.array.indices
    ]
