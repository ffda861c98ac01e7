"""What a replay is told of workloads, and what it answers: how each one's life went.  Values only; see `replay`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.workload import Admission, Workload

from .engine import EngineOptions

__all__ = ["Arrival", "Life", "Replay", "ReplayOptions", "Resume", "Standing"]

_PLAIN = EngineOptions()
_ZERO = Instant(0)


class Resume(StrEnum):
    """With what an evicted workload comes back: the rest of its runtime (it has checkpoints), or all of it."""

    REMAINING = "remaining"
    FROM_SCRATCH = "from-scratch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A workload and what is known of it.  `runtime_us` None: once started it does not end by itself.

    `cancelled_at` takes it out wherever it is then, waiting or running.
    """

    workload: Workload
    at: Instant
    runtime_us: int | None
    cancelled_at: Instant | None = None
    requeue_at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One that holds quota when the replay begins.  `runtime_us` is what is left; `returns`: evicted, not cancelled."""

    workload: Workload
    admission: Admission
    reserved_at: Instant
    runtime_us: int | None
    evicting: bool = False
    returns: bool = True
    again_us: int | None = None  # of one that returns: how long its next try lasts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """`tick_us` lets every cycle take that long (Kueue's replays take 1 ms); 0 = cycles rest within an instant.

    `until` ends the replay there, else it ends when nothing more can happen.  `watch` ends it when that workload is
    admitted; `max_cycles` and `max_admissions` when so many there were.  `spare` False runs also the cycles that decide nothing;
    `loose` spares them also where queues have a choice of flavors (see `sieve`).
    """

    evict_us: int = 0
    tick_us: int = 0
    resume: Resume = Resume.REMAINING
    until: Instant | None = None
    watch: WorkloadKey | None = None
    max_cycles: int | None = None
    max_admissions: int | None = None
    spare: bool = True
    loose: bool = False
    engine: EngineOptions = _PLAIN


@dataclass(slots=True)
class Life:
    """What became of one workload.  `started` is its first admission; instants are None where it never came so far."""

    workload: Workload
    arrived: Instant
    runtime_us: int | None
    cluster_queue: str | None = None
    started: Instant | None = None
    last_admitted: Instant | None = None
    finished: Instant | None = None
    cancelled: bool = False
    stood: bool = False  # it held quota when the replay began
    preempted: int = 0
    evicted: int = 0  # for any reason, preemptions among them
    preempting: int = 0
    left_us: int | None = None
    turn: int = 0  # fences the ends of earlier admissions
    holding: Admission | None = None
    since: Instant = _ZERO

    @property
    def wait_us(self) -> int | None:
        """From its arrival to its first start."""
        return None if self.started is None else self.started - self.arrived


@dataclass(slots=True)
class Replay:
    """The answer.  `used[queue, resource]` is amount times microseconds; `unsettled` counts instants cut short."""

    began: Instant
    ended: Instant
    lives: dict[WorkloadKey, Life] = field(default_factory=dict)
    used: Counter[tuple[str, str]] = field(default_factory=Counter)
    admissions: int = 0
    evictions: int = 0
    shrinks: int = 0
    cycles: int = 0
    unsettled: int = 0
    last_end: Instant = _ZERO
    cut: bool = False  # a bound was reached
    order: list[WorkloadKey] = field(default_factory=list)  # of admissions
