"""What goes beyond Kueue's decisions.  Everything but `shrink_gangs` is off until a policy asks for it.

Durations are integers in microseconds, as instants are.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Ageing", "EngineOptions", "LivelockRule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ageing:
    """Right of way grows with waiting: by `step` for every `every_us` since submission, by `most` at most.

    It moves a workload forward in line; whom it may preempt, and who may preempt it, stays with its own priority.
    """

    every_us: int
    step: int = 1
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LivelockRule:
    """Two workloads that took the place from each other `takes` times within `within_us` do so no more: who has it keeps it."""

    takes: int
    within_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """`shrink_gangs`: an elastic gang gives up its surplus before anyone is taken whole.

    `reserve_after_us`: room is kept for the first in a BestEffortFIFO line once it has waited so long, and others
    backfill; None keeps none.  `min_runtime_us`: nobody is preempted who has held quota for less.
    """

    shrink_gangs: bool = True
    reserve_after_us: int | None = None
    min_runtime_us: int = 0
    ageing: Ageing | None = None
    livelock: LivelockRule | None = None
