"""Kueue's v1beta2 objects as JSON, read into the words of the house: what the conformance corpus is written in.

Takes what the corpus uses and trusts it; people's files are read by `manifests`, which checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tenure.domain.amounts import parse_decimal, parse_quantity
from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.policy import (
    BorrowPolicy,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    CurrencyPreference,
    FairSharing,
    Flavor,
    FlavorQuotas,
    Fungibility,
    LabelRequirement,
    LabelSelector,
    LocalQueue,
    Namespace,
    Policy,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    Quota,
    ResourceGroup,
    ShareStrategy,
    StopPolicy,
    Taint,
    Toleration,
    WhenCanBorrow,
    WhenCanPreempt,
)  # fmt: skip
from tenure.domain.workload import NodeSelectorTerm, PodSet, Workload

__all__ = ["Json", "read_policy", "read_workload"]

Json = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_policy(scenario: Json) -> Policy:
    """The policy part of a scenario, with Kueue's defaults."""
    fair = scenario.get("fairSharing")
    return Policy(
        flavors={f.name: f for f in map(_flavor, scenario.get("flavors") or ())},
        cluster_queues={q.name: q for q in map(_cluster_queue, scenario.get("clusterQueues") or ())},
        cohorts={c.name: c for c in map(_cohort, scenario.get("cohorts") or ())},
        local_queues={(q.namespace, q.name): q for q in map(_local_queue, scenario.get("localQueues") or ())},
        namespaces={n.name: n for n in map(_namespace, scenario.get("namespaces") or ())},
        fair_sharing=None if fair is None else _fair_sharing(fair),
    )


def _fair_sharing(raw: Json) -> FairSharing:
    named = tuple(ShareStrategy(s) for s in raw.get("preemptionStrategies") or ())
    return FairSharing(preemption_strategies=named) if named else FairSharing()


def _name(raw: Json) -> str:
    return str(raw["metadata"]["name"])


def _namespace(raw: Json) -> Namespace:
    return Namespace(name=_name(raw), labels=dict(raw["metadata"].get("labels") or {}))


def _flavor(raw: Json) -> Flavor:
    spec = raw.get("spec") or {}
    return Flavor(
        name=_name(raw),
        node_labels=dict(spec.get("nodeLabels") or {}),
        node_taints=tuple(
            Taint(key=t["key"], value=t.get("value", ""), effect=t["effect"]) for t in spec.get("nodeTaints") or ()
        ),
        tolerations=tuple(map(_toleration, spec.get("tolerations") or ())),
    )


def _toleration(raw: Json) -> Toleration:
    return Toleration(
        key=raw.get("key", ""),
        operator=raw.get("operator") or "Equal",
        value=raw.get("value", ""),
        effect=raw.get("effect", ""),
    )


def _groups(spec: Json) -> tuple[ResourceGroup, ...]:
    return tuple(
        ResourceGroup(
            covered_resources=tuple(g["coveredResources"]),
            flavors=tuple(
                FlavorQuotas(flavor=f["name"], resources={r["name"]: _quota(r) for r in f["resources"]})
                for f in g["flavors"]
            ),
        )
        for g in spec.get("resourceGroups") or ()
    )


def _quota(raw: Json) -> Quota:
    def amount(field: str) -> int | None:
        return None if raw.get(field) is None else parse_quantity(raw[field], resource=raw["name"])

    return Quota(
        nominal=amount("nominalQuota") or 0, borrowing_limit=amount("borrowingLimit"), lending_limit=amount("lendingLimit")
    )  # fmt: skip


def _weight(spec: Json) -> float:
    weight = (spec.get("fairSharing") or {}).get("weight")
    return 1.0 if weight is None else float(parse_decimal(weight))


def _cohort(raw: Json) -> Cohort:
    spec = raw.get("spec") or {}
    return Cohort(
        name=_name(raw),
        parent=spec.get("parentName") or None,
        resource_groups=_groups(spec),
        fair_weight=_weight(spec),
    )


def _cluster_queue(raw: Json) -> ClusterQueue:
    spec = raw.get("spec") or {}
    return ClusterQueue(
        name=_name(raw),
        cohort=spec.get("cohortName") or None,
        resource_groups=_groups(spec),
        queueing_strategy=QueueingStrategy(spec.get("queueingStrategy") or "BestEffortFIFO"),
        namespace_selector=_selector(spec.get("namespaceSelector")),
        fungibility=_fungibility(spec.get("flavorFungibility") or {}),
        preemption=_preemption(spec.get("preemption") or {}),
        stop_policy=StopPolicy(spec.get("stopPolicy") or "None"),
        fair_weight=_weight(spec),
    )


def _selector(raw: Json | None) -> LabelSelector | None:
    if raw is None:
        return None
    return LabelSelector(
        match_labels=dict(raw.get("matchLabels") or {}),
        match_expressions=tuple(map(_requirement, raw.get("matchExpressions") or ())),
    )


def _requirement(raw: Json) -> LabelRequirement:
    return LabelRequirement(key=raw["key"], operator=raw["operator"], values=tuple(raw.get("values") or ()))


def _fungibility(raw: Json) -> Fungibility:
    preference = raw.get("preference")
    return Fungibility(
        when_can_borrow=WhenCanBorrow(raw.get("whenCanBorrow") or "MayStopSearch"),
        when_can_preempt=WhenCanPreempt(raw.get("whenCanPreempt") or "TryNextFlavor"),
        preference=CurrencyPreference(preference) if preference else None,
    )


def _preemption(raw: Json) -> Preemption:
    borrow = raw.get("borrowWithinCohort") or {}
    return Preemption(
        within_cluster_queue=PreemptionPolicy(raw.get("withinClusterQueue") or "Never"),
        reclaim_within_cohort=PreemptionPolicy(raw.get("reclaimWithinCohort") or "Never"),
        borrow_within_cohort=BorrowWithinCohort(
            policy=BorrowPolicy(borrow.get("policy") or "Never"),
            max_priority_threshold=borrow.get("maxPriorityThreshold"),
        ),
    )


def _local_queue(raw: Json) -> LocalQueue:
    spec = raw["spec"]
    return LocalQueue(
        name=_name(raw),
        namespace=raw["metadata"].get("namespace", "default"),
        cluster_queue=spec["clusterQueue"],
        stop_policy=StopPolicy(spec.get("stopPolicy") or "None"),
    )


def read_workload(raw: Json) -> Workload:
    """A pending Workload object.  Its key is `namespace/name`."""
    meta, spec = raw["metadata"], raw["spec"]
    namespace = meta.get("namespace", "default")
    created = datetime.fromisoformat(meta["creationTimestamp"])
    return Workload(
        key=WorkloadKey(f"{namespace}/{meta['name']}"),
        uid=meta.get("uid") or meta["name"],
        namespace=namespace,
        queue=spec["queueName"],
        pod_sets=tuple(map(_pod_set, spec["podSets"])),
        created_at=Instant((created - _EPOCH) // timedelta(microseconds=1)),
        priority=spec.get("priority") or 0,
        active=spec.get("active", True),
    )


def _pod_set(raw: Json) -> PodSet:
    spec = raw["template"]["spec"]
    requests: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for resource, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            requests[resource] = requests.get(resource, 0) + parse_quantity(amount, resource=resource)
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    return PodSet(
        name=raw.get("name") or "main",
        count=raw.get("count", 1),
        min_count=raw.get("minCount"),
        requests=requests,
        node_selector=dict(spec.get("nodeSelector") or {}),
        affinity_terms=tuple(
            NodeSelectorTerm(expressions=tuple(map(_requirement, term.get("matchExpressions") or ())))
            for term in required.get("nodeSelectorTerms") or ()
        ),
        tolerations=tuple(map(_toleration, spec.get("tolerations") or ())),
    )
