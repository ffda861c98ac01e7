"""A job as the engine sees it, and what the engine gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .ids import CardId, Instant, WorkloadKey
from .policy import LabelRequirement, Toleration

__all__ = ["Admission", "Card", "NodeSelectorTerm", "Placement", "PodSet", "PodSetAssignment", "Workload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelectorTerm:
    """Expressions that must all hold; terms are alternatives (Kubernetes' required node affinity)."""

    expressions: tuple[LabelRequirement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """A count of equal processes.  `requests` are **per process**; `min_count` allows fewer."""

    name: str = "main"
    count: int = 1
    min_count: int | None = None
    requests: Mapping[str, int] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity_terms: tuple[NodeSelectorTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What waits for quota.  `uid` breaks the last ties; `queue` is a local queue of `namespace`."""

    key: WorkloadKey
    uid: str
    namespace: str
    queue: str
    pod_sets: tuple[PodSet, ...]
    created_at: Instant
    priority: int = 0
    active: bool = True
    whole_card: bool = False  # every process claims all shares of the card it is placed on
    time_limit_us: int | None = None
    avoid: frozenset[CardId] = frozenset()  # cards that it may not be placed on now: others have claimed them


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card to place on.  `flavor` is the ResourceFlavor its model maps to; a cordoned card takes nothing new."""

    id: CardId
    flavor: str
    shares: int
    memory: int
    index: int = 0
    cordoned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where processes of one pod set go: `ranks[i]` is the index of the i-th process within the pod set."""

    card: CardId
    pod_set: str
    ranks: tuple[int, ...]
    shares: int  # summed over the ranks
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetAssignment:
    """`usage` is summed over `count` processes; `flavors` maps each resource to the flavor that pays for it."""

    name: str
    flavors: Mapping[str, str]
    usage: Mapping[str, int]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Quota reserved, and a place.  `placements` is empty where no cards are known or none are asked for."""

    cluster_queue: str
    assignments: tuple[PodSetAssignment, ...]
    placements: tuple[Placement, ...] = ()
