"""One try at running a job on a backend: what the backend is told, and what it tells back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from .ids import Instant, JobId, RunId
from .job import JobSpec
from .lifecycle import Outcome

__all__ = ["AttemptSpec", "AttemptState", "Backend", "Health", "Observation", "Process", "Stop", "StopKind", "Survivor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of the attempt: its rank and the card it may see (UUIDs; empty = none)."""

    rank: int
    cards: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpec:
    """All that a backend needs.  `env` is complete: the backend adds only what it alone knows (ports, ranks).

    `run_dir` is absolute.  `retry_of` names the run that this one replaces; `checkpoints_of` the run directory whose
    checkpoints it continues.
    """

    run_id: RunId
    job_id: JobId
    number: int
    run_dir: str
    job: JobSpec
    env: Mapping[str, str]
    processes: tuple[Process, ...]
    retry_of: RunId | None = None
    checkpoints_of: str | None = None


class StopKind(StrEnum):
    """Why the platform asks an attempt to stop.  Only `cancel` marks the record as cancelled."""

    CANCEL = "cancel"
    PREEMPT = "preempt"
    EVICT = "evict"
    TIME_LIMIT = "time-limit"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A request to stop: marked in the record first, then signalled, then escalated after the grace."""

    kind: StopKind
    reason: str
    message: str = ""
    by: str = ""
    grace_s: float = 30.0
    signal: str = "TERM"


class AttemptState(StrEnum):
    ABSENT = "absent"  # nothing was ever started under this name
    STARTING = "starting"  # asked for; no process yet
    RUNNING = "running"
    STOPPING = "stopping"  # a stop was asked for; something still lives
    LAUNCH_FAILED = "launch-failed"
    ENDED = "ended"  # every process has left
    LOST = "lost"  # the supervisor died without a word; survivors (if any) are named
    UNKNOWN = "unknown"  # the backend cannot tell: unknown is not dead


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """A process that outlived its end: it keeps its share, by name.  `started` is the kernel's start time in ticks."""

    pid: int
    started: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known of one attempt.  `exit_code` is a process's own, or 128+N with `signal` N.

    `outcome` is set once ended: `interrupted` where a stop that is not a cancel took effect, `cancelled` where a cancel
    did.  `failed_rank` names the process of a gang whose death ended the others.  `details` may hold `boot_id`, the boot it
    ran under, and whatever else a backend knows.
    """

    run_id: RunId
    state: AttemptState
    at: Instant
    started_at: Instant | None = None
    ended_at: Instant | None = None
    exit_code: int | None = None
    signal: int | None = None
    outcome: Outcome | None = None
    reason: str = ""  # LaunchError code, TimeLimit, GangMemberFailed, SupervisorLost, MachineRestarted, OutOfMemory …
    message: str = ""
    failed_rank: int | None = None
    processes: int | None = None  # places it needs: an elastic gang gives them back as ranks leave
    survivors: tuple[Survivor, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    ok: bool
    message: str = ""
    details: Mapping[str, object] = field(default_factory=dict)


class Listener(Protocol):
    """Called by a backend, from a thread of its own, whenever it hears news of an attempt."""

    def __call__(self, observation: Observation, /) -> None: ...


class Backend(Protocol):
    """The one seam to the hands.  `tenure.testing.backend_contract` is what every implementation must pass.

    Every call is idempotent and keyed by run id.  None of them writes the ledger, and none blocks on a job.
    """

    name: str

    def open(self, listener: Listener) -> None:
        """Begin to listen.  News that nobody heard is found by `observe`."""

    def start(self, attempt: AttemptSpec) -> None:
        """Ask for the start and return; `running` or `launch-failed` follows as news.  Starting twice starts once.

        Raises LaunchError where it is clear at once that nothing can start (and then nothing was left behind).
        """

    def observe(self, attempts: Sequence[tuple[RunId, str]]) -> Mapping[RunId, Observation]:
        """The truth about many attempts at once, each named by run id and run directory."""

    def stop(self, run: RunId, run_dir: str, stop: Stop) -> None:
        """Mark the record, signal, escalate.  A no-op for what has ended."""

    def shrink(self, run: RunId, run_dir: str, count: int, stop: Stop) -> None:
        """Stop the ranks >= `count` of an elastic gang; the rest go on."""

    def probe(self) -> Health:
        """Can this backend start anything now?"""

    def close(self) -> None:
        """Stop listening.  Running attempts go on."""
