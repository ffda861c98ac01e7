"""Reason codes: Kueue's own words, unchanged, and the few that one machine adds."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["EvictionReason", "PendingReason", "PreemptionReason"]


class PendingReason(StrEnum):
    """Why a job holds no quota."""

    PENDING_EVALUATION = "PendingEvaluation"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    MISCONFIGURED = "Misconfigured"
    SUSPENDED = "Suspended"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    WAITING_FOR_PODS_READY = "WaitingForPodsReady"
    ADMISSION_GATED = "AdmissionGated"
    ON_HOLD = "OnHold"
    UNSATISFIED_CHECKS = "UnsatisfiedAdmissionChecks"  # quota is held, and not every admission check is ready
    DEACTIVATED = "Deactivated"
    PENDING = "Pending"
    # tenure's own, for what Kueue leaves to others
    DEPENDENCY_NEVER_SATISFIED = "DependencyNeverSatisfied"  # how a job ends that waited for it
    WAITING_FOR_DEPENDENCY = "WaitingForDependency"
    WAITING_FOR_BEGIN_TIME = "WaitingForBeginTime"
    WAITING_FOR_ARRAY_LIMIT = "WaitingForArrayLimit"
    LAUNCH_BACKOFF = "LaunchBackoff"
    WAITING_FOR_WINDOW = "WaitingForWindow"  # somebody has claimed the whole card, or is about to


class PreemptionReason(StrEnum):
    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


class EvictionReason(StrEnum):
    PREEMPTED = "Preempted"
    PODS_READY_TIMEOUT = "PodsReadyTimeout"
    ADMISSION_CHECK = "AdmissionCheck"
    CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    NODE_FAILURES = "NodeFailures"
    DEACTIVATED = "Deactivated"
    DEACTIVATED_ADMISSION_CHECK = "DeactivatedDueToAdmissionCheck"
    DEACTIVATED_REQUEUING_LIMIT = "DeactivatedDueToRequeuingLimitExceeded"
    MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded"
    # tenure's own
    WINDOW_CLAIMED = "WindowClaimed"  # somebody has claimed the whole card for a while
    PLATFORM_STOPPED = "PlatformStopped"  # `tenure down`
    SUPERVISOR_LOST = "SupervisorLost"  # the attempt's supervisor was killed; its processes were ended
    MACHINE_RESTARTED = "MachineRestarted"  # another boot: nothing of the attempt can be alive
