"""Every metric by name: its type, its labels, what it means, and which of Kueue's it stands for.

`docs/metrics.md` is this table for people, and a test holds the two equal.  Labels hold names out of the policy, words
of the house and what NVML calls a card; never what a user wrote (job names, projects, owners).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["BY_NAME", "FAMILIES", "Family"]

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Family:
    """`kueue` is the name that Kueue gives it, empty where Kueue has no such metric."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    kueue: str = ""


def _like_kueue(name: str, kind: Kind, labels: str, help: str) -> Family:
    return Family(f"tenure_{name}", kind, tuple(labels.split()), help, f"kueue_{name}")


def _own(name: str, kind: Kind, labels: str, help: str) -> Family:
    return Family(f"tenure_{name}", kind, tuple(labels.split()), help)


_PRIORITY = "cluster_queue priority_class"
_AMOUNT = "cohort cluster_queue flavor resource"
_LOCAL = "name namespace"
_CARD = "card flavor source"
_DCGM = ("gpu", "UUID", "Hostname", "modelName")

FAMILIES: tuple[Family, ...] = (
    # Kueue's: deciding
    _like_kueue("admission_attempts_total", "counter", "result", "Scheduling cycles that had something to look at"),
    _like_kueue("admission_attempt_duration_seconds", "histogram", "result", "How long such a cycle took"),
    # Kueue's: waiting and holding
    _like_kueue("pending_workloads", "gauge", "cluster_queue status", "Jobs that wait for quota: active (the next cycle looks at them) or inadmissible (parked until something changes)"),
    _like_kueue("unadmitted_workloads", "gauge", "cluster_queue reason underlying_cause", "Jobs that are not admitted by reason, those that wait for a time, a job, a release or an admission check among them"),
    _like_kueue("reserving_active_workloads", "gauge", "cluster_queue", "Jobs that hold quota"),
    _like_kueue("admitted_active_workloads", "gauge", "cluster_queue", "Jobs that hold quota and are admitted: no admission check is open"),
    _like_kueue("quota_reserved_workloads_total", "counter", _PRIORITY, "Times that quota was reserved"),
    _like_kueue("admitted_workloads_total", "counter", _PRIORITY, "Times that a job was admitted"),
    _like_kueue("finished_workloads_total", "counter", _PRIORITY, "Jobs that ended, in whatever way"),
    _like_kueue("quota_reserved_wait_time_seconds", "histogram", _PRIORITY, "From submission, release or requeue until quota was reserved"),
    _like_kueue("admission_wait_time_seconds", "histogram", _PRIORITY, "From submission, release or requeue until admission"),
    _like_kueue("admission_checks_wait_time_seconds", "histogram", _PRIORITY, "From the reservation of quota until every admission check was ready; jobs with checks only"),
    _like_kueue("ready_wait_time_seconds", "histogram", _PRIORITY, "From submission, release or requeue until the first process ran"),
    _like_kueue("admitted_until_ready_wait_time_seconds", "histogram", _PRIORITY, "From admission until the first process ran"),
    # Kueue's: taking back
    _like_kueue("evicted_workloads_total", "counter", "cluster_queue reason underlying_cause priority_class", "Jobs that lost quota before they had ended"),
    _like_kueue("evicted_workloads_once_total", "counter", "cluster_queue reason detailed_reason priority_class", "Jobs that lost quota for the first time before they had ended"),
    _like_kueue("pods_ready_to_evicted_time_seconds", "histogram", "cluster_queue reason underlying_cause", "From the start of the first process until the job was asked to leave"),
    _like_kueue("preempted_workloads_total", "counter", "preempting_cluster_queue reason", "Jobs that were asked to stop for another, by the queue of the other"),
    # Kueue's: quota
    _like_kueue("cluster_queue_status", "gauge", "cluster_queue status", "1 for the status it has: pending (stopped, or names something that is missing), active, terminating"),
    _like_kueue("cluster_queue_resource_reservation", "gauge", _AMOUNT, "Quota reserved, in base units"),
    _like_kueue("cluster_queue_resource_usage", "gauge", _AMOUNT, "Quota used by admitted jobs, in base units"),
    _like_kueue("cluster_queue_nominal_quota", "gauge", _AMOUNT, "Quota owned"),
    _like_kueue("cluster_queue_borrowing_limit", "gauge", _AMOUNT, "What may be borrowed; absent where there is no limit"),
    _like_kueue("cluster_queue_lending_limit", "gauge", _AMOUNT, "What may be lent; absent where there is no limit"),
    _like_kueue("cluster_queue_resource_pending", "gauge", "cluster_queue resource", "What the jobs that wait for quota ask for together, in base units"),
    _like_kueue("cluster_queue_weighted_share", "gauge", "cluster_queue cohort", "Thousandths of what the cohort could lend that the queue borrows, over its weight; +Inf with weight 0"),
    # Kueue's: cohorts
    _like_kueue("cohort_weighted_share", "gauge", "cohort", "The same of a cohort within the cohort above it"),
    _like_kueue("cohort_subtree_quota", "gauge", "cohort flavor resource", "What the cohort and all below it own and would lend"),
    _like_kueue("cohort_subtree_resource_reservations", "gauge", "cohort flavor resource", "What of that is in use"),
    _like_kueue("cohort_subtree_admitted_active_workloads", "gauge", "cohort", "Jobs of all queues below that hold quota"),
    _like_kueue("cohort_subtree_admitted_workloads_total", "counter", "cohort priority_class", "Times that a job of a queue below was admitted"),
    # Kueue's: local queues
    _like_kueue("local_queue_pending_workloads", "gauge", f"{_LOCAL} status", "Jobs of the local queue that wait for quota"),
    _like_kueue("local_queue_unadmitted_workloads", "gauge", f"{_LOCAL} reason underlying_cause", "Jobs of the local queue that are not admitted, by reason"),
    _like_kueue("local_queue_reserving_active_workloads", "gauge", _LOCAL, "Jobs of the local queue that hold quota"),
    _like_kueue("local_queue_admitted_active_workloads", "gauge", _LOCAL, "Jobs of the local queue that hold quota and are admitted"),
    _like_kueue("local_queue_admitted_workloads_total", "counter", f"{_LOCAL} priority_class", "Times that a job of the local queue was admitted"),
    _like_kueue("local_queue_evicted_workloads_total", "counter", f"{_LOCAL} reason underlying_cause priority_class", "Jobs of the local queue that lost quota before they had ended"),
    # tenure's: jobs
    _own("jobs", "gauge", "state", "Jobs that have not ended, by state"),
    _own("job_outcomes_total", "counter", "cluster_queue outcome", "Jobs that ended, by outcome"),
    _own("oldest_pending_workload_seconds", "gauge", "cluster_queue", "Time since the submission of the oldest job that waits for quota; absent where none waits"),
    _own("launch_failures_total", "counter", "cluster_queue", "Attempts whose first process could not be started"),
    _own("runs_given_up_total", "counter", "kind", "Runs given up because they went quiet for longer than they allow themselves: of a job, or started by hand"),
    _own("stalled_runs", "gauge", "", "Runs that went quiet, were given up, and whose jobs still hold quota"),
    _own("runs_healed_total", "counter", "", "Runs that spoke again after they had been given up"),
    _own("livelock_events_total", "counter", "", "Jobs caught taking a card from each other again and again"),
    # tenure's: the engine of the house
    _own("conductor_step_duration_seconds", "histogram", "", "How long a step of the loop took"),
    _own("conductor_last_step_seconds", "gauge", "", "Time since the last step that succeeded; one is due every five seconds"),
    _own("conductor_faults_total", "counter", "", "Steps that failed, after which the state was rebuilt from the ledger"),
    _own("ledger_commit_duration_seconds", "histogram", "durable", "How long a commit took: true until it would survive a power loss, false until it is written"),
    _own("backend_up", "gauge", "", "1 while attempts can be started"),
    _own("metrics_diary_lag_events", "gauge", "", "Lines of the diary that the counters have yet to read"),
    _own("metrics_snapshot_age_seconds", "gauge", "", "Age of the numbers of queues and cards: above 0 only while the loop lets nobody look"),
    _own("start_time_seconds", "gauge", "", "When this daemon started, in seconds since 1970; counters start from 0 then"),
    _own("build_info", "gauge", "version", "1"),
    # tenure's: what cards were promised to whom
    _own("card_shares", "gauge", _CARD, "Shares that the card has"),
    _own("card_shares_held", "gauge", _CARD, "Shares that jobs hold"),
    _own("card_memory_bytes", "gauge", _CARD, "Memory that jobs can be promised"),
    _own("card_memory_promised_bytes", "gauge", _CARD, "Memory that jobs hold, as they declared it"),
    _own("card_cordoned", "gauge", _CARD, "1 while the card takes nothing new"),
    _own("window_active", "gauge", "card", "1 while a window holds the card"),
    _own("windows_waiting", "gauge", "card", "Windows that wait for their turn on the card or for their time, the one it is being cleared for among them"),
    _own("windows_total", "counter", "ended_reason", "Windows that ended, by why; those that never held a card among them"),
    _own("window_held_seconds_total", "counter", "card", "How long windows held the card; counted when they end"),
    _own("card_readable", "gauge", _CARD, "1 while the driver answers for the card; measured cards only"),
    # DCGM's: what NVML measured
    Family("DCGM_FI_DEV_GPU_UTIL", "gauge", _DCGM, "Utilization in percent, as measured"),
    Family("DCGM_FI_DEV_FB_USED", "gauge", _DCGM, "Memory in use in MiB, as measured"),
    Family("DCGM_FI_DEV_FB_FREE", "gauge", _DCGM, "Memory free in MiB, as measured"),
    Family("DCGM_FI_DEV_GPU_TEMP", "gauge", _DCGM, "Temperature in degrees Celsius, as measured"),
    Family("DCGM_FI_DEV_POWER_USAGE", "gauge", _DCGM, "Power in watts, as measured"),
    Family("DCGM_FI_DEV_XID_ERRORS", "gauge", _DCGM, "The last Xid that the driver reported since the daemon started"),
)  # fmt: skip

BY_NAME = {family.name: family for family in FAMILIES}
