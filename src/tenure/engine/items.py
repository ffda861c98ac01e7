"""One workload as the engine keeps it: where it waits, or what it holds.

Only the engine's own modules change an item.  `frs` are the pairs that a holder was given, also those of amount zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.plan import Pend
from tenure.domain.workload import Admission, Workload

from .forms import Form
from .quota import Usage

if TYPE_CHECKING:
    from .queues import Pile, Queue

__all__ = ["Item", "Rank", "Scan"]

Rank = tuple[int, Instant, str, int]
"""Higher priority, older, smaller uid; at last who came first."""


@dataclass(frozen=True, slots=True)
class Scan:
    """How far the last evaluation got: per pod set and resource the last flavor looked at, -1 where it was the last."""

    tried: tuple[dict[str, int], ...]
    generation: int
    cycle: int
    form: Form

    @property
    def unfinished(self) -> bool:
        return any(k != -1 for pod_set in self.tried for k in pod_set.values())

    def start(self, pod_set: int, resource: str) -> int:
        if pod_set >= len(self.tried):
            return 0
        return self.tried[pod_set].get(resource, -1) + 1


class Item:
    """`queue` is None while no cluster queue takes the workload; `pile` is where it waits inside that queue."""

    __slots__ = (
        "admission", "aside", "boost", "evicting", "form", "frs", "key", "not_before", "pile", "priority", "queue", "rank",
        "reserved_at", "scan", "seq", "shrinking", "status", "ts", "uid", "usage", "workload",
    )  # fmt: skip

    def __init__(self, workload: Workload, form: Form, seq: int) -> None:
        self.seq = seq
        self.queue: Queue | None = None
        self.pile: Pile | None = None
        self.not_before: Instant | None = None
        self.aside = False
        self.scan: Scan | None = None
        self.status: Pend | None = None
        self.admission: Admission | None = None
        self.usage: Usage = {}
        self.frs: frozenset[int] = frozenset()
        self.reserved_at = Instant(0)
        self.evicting = False
        self.shrinking: dict[str, int] = {}
        self.boost = 0
        self.adopt(workload, form)

    def adopt(self, workload: Workload, form: Form) -> None:
        self.workload = workload
        self.form = form
        self.key: WorkloadKey = workload.key
        self.uid = workload.uid
        self.priority = workload.priority
        self.ts = workload.created_at
        self.lift(self.boost)

    def lift(self, boost: int) -> None:
        """`boost` counts in line, on top of its priority."""
        self.boost = boost
        self.rank: Rank = (-self.priority - boost, self.ts, self.uid, self.seq)

    @property
    def holds(self) -> bool:
        return self.admission is not None
