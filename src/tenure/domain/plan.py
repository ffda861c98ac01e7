"""What one scheduling cycle decided.  The engine makes it, control carries it out, the ledger keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from .ids import Instant, WorkloadKey
from .reasons import EvictionReason, PendingReason, PreemptionReason
from .workload import Admission

__all__ = ["Admit", "Evict", "Livelock", "Pend", "Plan", "Preempt", "Shrink"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    key: WorkloadKey
    admission: Admission


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """`victim` must stop; its quota stays taken until it has left."""

    victim: WorkloadKey
    preemptor: WorkloadKey
    reason: PreemptionReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """`key` must stop for a reason that is no other workload's (a queue was stopped, a card failed)."""

    key: WorkloadKey
    reason: EvictionReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrink:
    """An elastic gang gives up the processes with rank >= `count`; it is never left below its minimum."""

    victim: WorkloadKey
    preemptor: WorkloadKey
    pod_set: str
    count: int
    reason: PreemptionReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pend:
    """Still waiting, and why: the reason for machines, Kueue's message for people."""

    key: WorkloadKey
    reason: PendingReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Livelock:
    """Two took the place from each other `takes` times within `within_us`: `keeper` has it and keeps it until `until`."""

    keeper: WorkloadKey
    other: WorkloadKey
    takes: int
    within_us: int
    until: Instant
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`order` is the order in which the cycle processed its entries."""

    order: tuple[WorkloadKey, ...] = ()
    admits: tuple[Admit, ...] = ()
    preempts: tuple[Preempt, ...] = ()
    evicts: tuple[Evict, ...] = ()
    shrinks: tuple[Shrink, ...] = ()
    pends: tuple[Pend, ...] = ()
    livelocks: tuple[Livelock, ...] = ()
