"""Policy as values: Kueue's objects after reading, with their defaults filled in.

Amounts are integers as `domain.amounts` makes them.  Names follow Kueue's v1beta2 fields.  Mappings keep the order in
which they were written, because the order of flavors is a preference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .options import EngineOptions

__all__ = [
    "AdmissionCheckRef", "BorrowPolicy", "BorrowWithinCohort", "ClusterQueue", "Cohort", "CurrencyPreference", "FairSharing", "Flavor",
    "FlavorQuotas", "Fungibility", "LabelRequirement", "LabelSelector", "LimitRange", "LocalQueue", "Namespace", "Policy", "Preemption", "PreemptionPolicy",
    "PriorityClass", "QueueingStrategy", "Quota", "QuotaCheckStrategy", "ResourceGroup", "ResourceQuota", "ShareStrategy", "StopPolicy", "Taint",
    "Toleration", "Transformation", "WaitForPodsReady", "WhenCanBorrow", "WhenCanPreempt",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """Kubernetes' rule: operator `Exists` ignores the value; an empty key with `Exists` tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRequirement:
    """One expression of a label selector or node selector term: operator In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """Kubernetes' label selector.  Empty matches everything; *absent* (None at the use) matches nothing."""

    match_labels: Mapping[str, str] = field(default_factory=dict)
    match_expressions: tuple[LabelRequirement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """`borrowing_limit` None = unlimited; `lending_limit` None = everything may be lent."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorQuotas:
    flavor: str
    resources: Mapping[str, Quota]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGroup:
    covered_resources: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


class PreemptionPolicy(StrEnum):
    """Which candidates a preemptor may take."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"
    ANY = "Any"


class BorrowPolicy(StrEnum):
    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"


@dataclass(frozen=True, slots=True, kw_only=True)
class BorrowWithinCohort:
    policy: BorrowPolicy = BorrowPolicy.NEVER
    max_priority_threshold: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    within_cluster_queue: PreemptionPolicy = PreemptionPolicy.NEVER
    reclaim_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort()


class WhenCanBorrow(StrEnum):
    MAY_STOP_SEARCH = "MayStopSearch"
    TRY_NEXT_FLAVOR = "TryNextFlavor"


class WhenCanPreempt(StrEnum):
    MAY_STOP_SEARCH = "MayStopSearch"
    TRY_NEXT_FLAVOR = "TryNextFlavor"


class CurrencyPreference(StrEnum):
    BORROWING_OVER_PREEMPTION = "BorrowingOverPreemption"
    PREEMPTION_OVER_BORROWING = "PreemptionOverBorrowing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fungibility:
    when_can_borrow: WhenCanBorrow = WhenCanBorrow.MAY_STOP_SEARCH
    when_can_preempt: WhenCanPreempt = WhenCanPreempt.TRY_NEXT_FLAVOR
    preference: CurrencyPreference | None = None


class QueueingStrategy(StrEnum):
    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"


class StopPolicy(StrEnum):
    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionCheckRef:
    """`on_flavors` empty = every flavor."""

    name: str
    on_flavors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueue:
    name: str
    cohort: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    queueing_strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    namespace_selector: LabelSelector | None = None
    fungibility: Fungibility = Fungibility()
    preemption: Preemption = Preemption()
    stop_policy: StopPolicy = StopPolicy.NONE
    fair_weight: float = 1.0
    admission_checks: tuple[AdmissionCheckRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    name: str
    parent: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    fair_weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueue:
    name: str
    namespace: str
    cluster_queue: str
    stop_policy: StopPolicy = StopPolicy.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """Kueue's WorkloadPriorityClass, or Kubernetes' PriorityClass (`workload` False)."""

    name: str
    value: int
    description: str = ""
    workload: bool = True
    global_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceQuota:
    """A namespace's hard caps.  `hard` maps `requests.<resource>` or `count/jobs` to an amount."""

    name: str
    namespace: str
    hard: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRange:
    """Per-container bounds and defaults of a namespace."""

    name: str
    namespace: str
    default_requests: Mapping[str, int] = field(default_factory=dict)
    minimum: Mapping[str, int] = field(default_factory=dict)
    maximum: Mapping[str, int] = field(default_factory=dict)


class ShareStrategy(StrEnum):
    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


@dataclass(frozen=True, slots=True, kw_only=True)
class FairSharing:
    preemption_strategies: tuple[ShareStrategy, ...] = (
        ShareStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,
        ShareStrategy.LESS_THAN_INITIAL_SHARE,
    )


class QuotaCheckStrategy(StrEnum):
    BLOCK_UNDECLARED = "BlockUndeclared"
    IGNORE_UNDECLARED = "IgnoreUndeclared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation:
    """`outputs += amount x input` (x the amount of `multiply_by`, where given); `replace` drops the input."""

    input: str
    replace: bool = False
    multiply_by: str | None = None
    outputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitForPodsReady:
    timeout_s: float = 1800.0
    backoff_base_s: float = 60.0
    backoff_max_s: float = 3600.0
    backoff_limit_count: int | None = None
    requeuing_timestamp: str = "Eviction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything that a policy directory says.  Keys are names; local queues are keyed by (namespace, name)."""

    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    cluster_queues: Mapping[str, ClusterQueue] = field(default_factory=dict)
    cohorts: Mapping[str, Cohort] = field(default_factory=dict)
    local_queues: Mapping[tuple[str, str], LocalQueue] = field(default_factory=dict)
    workload_priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    resource_quotas: tuple[ResourceQuota, ...] = ()
    limit_ranges: tuple[LimitRange, ...] = ()
    admission_checks: Mapping[str, str] = field(default_factory=dict)  # by name: the controller that answers
    fair_sharing: FairSharing | None = None
    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    quota_check: QuotaCheckStrategy = QuotaCheckStrategy.BLOCK_UNDECLARED
    wait_for_pods_ready: WaitForPodsReady | None = None
    engine_options: EngineOptions | None = None  # beyond Kueue; None = nothing
