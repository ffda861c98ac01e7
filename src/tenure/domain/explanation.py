"""Answers of the engine: who uses what, and why a workload waits.  Amounts are integers as `domain.amounts` makes them."""

from __future__ import annotations

from dataclasses import dataclass

from .ids import CardId, Instant, WorkloadKey
from .reasons import PendingReason

__all__ = ["Blocker", "CardHold", "CardUsage", "Counterfactual", "Explanation", "Holder", "QueueUsage", "Standing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUsage:
    """One flavor and resource of one cluster queue.

    `borrowed` is what it uses beyond its nominal quota; `lent` the part of its idle quota that others of its cohort
    have borrowed (a pool has no addresses: each lender's part is in proportion to what it could lend).  `pending`
    counts the workloads that wait for the queue; limits are None where there is none.
    """

    cluster_queue: str
    flavor: str
    resource: str
    nominal: int
    used: int
    borrowed: int
    lent: int
    borrowing_limit: int | None
    lending_limit: int | None
    available: int
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """`count` workloads of one local queue that stand alike; `oldest` is the creation of the oldest of them.

    `place`: `holds` (quota), `active` (in the heap), `inadmissible` (parked or backing off until something changes) or
    `aside` (no cluster queue takes it; `cluster_queue` may then be empty).  `reason` is empty for one that holds.
    """

    namespace: str
    queue: str
    cluster_queue: str
    place: str
    reason: str
    count: int
    oldest: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class CardHold:
    """A workload's part of a card, summed over its processes there."""

    key: WorkloadKey
    shares: int
    memory: int
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CardUsage:
    """One card as the engine has given it away: promises, not measurements.  Memory in bytes."""

    card: CardId
    flavor: str
    shares: int
    shares_free: int
    memory: int
    memory_free: int
    cordoned: bool
    holders: tuple[CardHold, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who has what is missing, whether it could be made to go, and the rule by which it could or could not."""

    key: WorkloadKey
    amount: int
    preemptible: bool
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """One thing in the way.

    `kind`: `quota` (in use by others), `limit` (more than could ever be had), `flavor` (not eligible), `resource` (no
    quota for it), `queue` (missing or stopped), `line` (others first), `preemption` (victims have yet to leave),
    `placement` (no card has room), `backoff`,
    `turn` (a flavor would do, and the queue's rules look at another first).
    """

    kind: str
    message: str
    resource: str | None = None
    flavor: str | None = None
    asked: int | None = None
    free: int | None = None
    held_by: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """A change, and what would come of it; checked on a copy of the engine before it is shown."""

    change: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`position` counts from 0 in the order of the cluster queue; it is no promise of the order of starts."""

    key: WorkloadKey
    reason: PendingReason
    message: str
    position: int | None = None
    blockers: tuple[Blocker, ...] = ()
    counterfactuals: tuple[Counterfactual, ...] = ()
