"""One head of a queue on its way through a cycle, and where it goes when it is not admitted."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from tenure.domain.reasons import PendingReason
from tenure.domain.workload import Placement

from .flavors import Assignment
from .items import Item, Scan
from .queues import Queue
from .victims import Target

__all__ = ["Entry", "Requeue"]


class Requeue(Enum):
    """Why an entry goes back to its queue; the queue decides by it between heap and parking."""

    GENERIC = auto()
    NO_FIT = auto()
    NO_CANDIDATES = auto()
    NAMESPACE = auto()
    SKIPPED = auto()  # nominated, and others were faster
    PREEMPTING = auto()

    @property
    def at_once(self) -> bool:
        return self in (Requeue.SKIPPED, Requeue.PREEMPTING)

    @property
    def for_equals(self) -> bool:
        """True where workloads of equal form would fare no better."""
        return self in (Requeue.NO_FIT, Requeue.NO_CANDIDATES)


@dataclass(slots=True, eq=False)
class Entry:
    item: Item
    queue: Queue
    assignment: Assignment
    targets: list[Target]
    scan: Scan | None
    message: str
    reason: PendingReason = PendingReason.PENDING
    requeue: Requeue = Requeue.GENERIC
    admitted: bool = False
    placements: tuple[Placement, ...] = field(default=())
    personal: bool = False  # the verdict is about this workload, and not about its form
