"""Kueue's own objects: ResourceFlavor, ClusterQueue, Cohort, LocalQueue, WorkloadPriorityClass, AdmissionCheck.

v1beta2 and v1beta1 (and v1alpha1 of Cohort).  The spellings that v1beta1 had are read in either version; values carry
v1beta2's.  The rules are those of Kueue's webhooks and CRDs.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenure.domain.policy import (
    AdmissionCheckRef,
    BorrowPolicy,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    CurrencyPreference,
    Flavor,
    Fungibility,
    LocalQueue,
    Preemption,
    PreemptionPolicy,
    PriorityClass,
    QueueingStrategy,
    StopPolicy,
    WhenCanBorrow,
    WhenCanPreempt,
)

from .kinds import Header, Kind
from .quotas import FAIR_SHARING, RESOURCE_GROUPS, fair_weight, resource_groups
from .scalars import Choice, Number, Text
from .schema import Anything, Field, ListOf, Object, Record, Unread
from .shapes import LABEL_SELECTOR, LABELS, NAME, TAINT, TOLERATION, label_selector, plain, taint, toleration

__all__ = ["KUEUE_KINDS"]

GROUP = "kueue.x-k8s.io"
_VERSIONS = (f"{GROUP}/v1beta2", f"{GROUP}/v1beta1")
_STOP_POLICY = Choice(("None", "Hold", "HoldAndDrain"))
_ON_ADMISSION_FAIR_SHARING = "has no effect yet: admission fair sharing is not part of the embedded engine"


# ResourceFlavor -------------------------------------------------------------------------------------------------------

_FLAVOR = Object(
    {
        "nodeLabels": LABELS,
        "nodeTaints": ListOf(item=TAINT, high=8),
        "tolerations": ListOf(item=TOLERATION, high=8),
        "topologyName": NAME,
    }
)


def _flavor(header: Header, record: Record) -> Flavor:
    spec = record.record("spec")
    labels = spec.get("nodeLabels")
    if labels and len(labels) > 8:
        spec.at("nodeLabels").error(f"{len(labels)} labels are too many; at most 8")
    if spec.given("topologyName") and not labels:
        spec.at("topologyName").error("needs at least one nodeLabel that says which nodes the topology covers")
    taints = [(taint(r), r) for r in spec.get("nodeTaints") or ()]
    seen: set[tuple[str, str]] = set()
    for value, where in taints:
        if (value.key, value.effect) in seen:
            where.spot.error(f"a taint {value.key} with effect {value.effect} stands here twice")
        seen.add((value.key, value.effect))
    return Flavor(
        name=header.name,
        node_labels=plain(labels),
        node_taints=tuple(t for t, _ in taints),
        tolerations=tuple(toleration(r) for r in spec.get("tolerations") or ()),
        topology_name=spec.get("topologyName"),
    )


# ClusterQueue ---------------------------------------------------------------------------------------------------------

_FUNGIBILITY = Object(
    {
        "whenCanBorrow": Choice(("MayStopSearch", "TryNextFlavor"), {"Borrow": "MayStopSearch"}),
        "whenCanPreempt": Choice(("MayStopSearch", "TryNextFlavor"), {"Preempt": "MayStopSearch"}),
        "preference": Choice(("BorrowingOverPreemption", "PreemptionOverBorrowing")),
    }
)
_PREEMPTION = Object(
    {
        "withinClusterQueue": Choice(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
        "reclaimWithinCohort": Choice(("Never", "LowerPriority", "Any")),
        "borrowWithinCohort": Object({"policy": Choice(("Never", "LowerPriority")), "maxPriorityThreshold": Number()}),
    }
)
_CHECK = Object({"name": Field(NAME, required=True), "onFlavors": ListOf(item=NAME)})
_CLUSTER_QUEUE = Object(
    {
        "cohortName": NAME,
        "cohort": Field(NAME, now="cohortName"),
        "resourceGroups": RESOURCE_GROUPS,
        "queueingStrategy": Choice(("StrictFIFO", "BestEffortFIFO")),
        "namespaceSelector": LABEL_SELECTOR,
        "flavorFungibility": _FUNGIBILITY,
        "preemption": _PREEMPTION,
        "stopPolicy": _STOP_POLICY,
        "fairSharing": FAIR_SHARING,
        "admissionChecksStrategy": Object({"admissionChecks": ListOf(item=_CHECK)}),
        "admissionChecks": ListOf(item=NAME, unique=True),
        "admissionScope": Unread(_ON_ADMISSION_FAIR_SHARING),
        "concurrentAdmissionPolicy": Unread("has no effect yet: it is an alpha feature of Kueue"),
    }
)


def _cluster_queue(header: Header, record: Record) -> ClusterQueue:
    spec = record.record("spec")
    groups = resource_groups(spec, joined=spec.given("cohortName"), join="spec.cohortName", capped=True)
    selector = spec.get("namespaceSelector")
    flavors = {row.flavor for group in groups for row in group.flavors}
    return ClusterQueue(
        name=header.name,
        cohort=spec.get("cohortName"),
        resource_groups=groups,
        queueing_strategy=QueueingStrategy(spec.get("queueingStrategy", "BestEffortFIFO")),
        namespace_selector=None if selector is None else label_selector(selector),
        fungibility=_fungibility(spec.record("flavorFungibility")),
        preemption=_preemption(spec.record("preemption")),
        stop_policy=StopPolicy(spec.get("stopPolicy", "None")),
        fair_weight=fair_weight(spec),
        admission_checks=_checks(spec, flavors),
    )


def _fungibility(record: Record) -> Fungibility:
    borrow = WhenCanBorrow(record.get("whenCanBorrow", "MayStopSearch"))
    preempt = WhenCanPreempt(record.get("whenCanPreempt", "TryNextFlavor"))
    preference: str | None = record.get("preference")
    if preference and (borrow, preempt) != (WhenCanBorrow.TRY_NEXT_FLAVOR, WhenCanPreempt.TRY_NEXT_FLAVOR):
        record.at("preference").error("works only when whenCanBorrow and whenCanPreempt are both TryNextFlavor")
    return Fungibility(
        when_can_borrow=borrow,
        when_can_preempt=preempt,
        preference=CurrencyPreference(preference) if preference else None,
    )


def _preemption(record: Record) -> Preemption:
    reclaim = PreemptionPolicy(record.get("reclaimWithinCohort", "Never"))
    borrow = record.record("borrowWithinCohort")
    policy = BorrowPolicy(borrow.get("policy", "Never"))
    sound = record.get("reclaimWithinCohort") is not None or not record.given("reclaimWithinCohort")
    if policy is not BorrowPolicy.NEVER and reclaim is PreemptionPolicy.NEVER and sound:
        borrow.at("policy").error(
            f"{policy} needs reclaimWithinCohort LowerPriority or Any; with Never nothing can be taken while borrowing"
        )
    return Preemption(
        within_cluster_queue=PreemptionPolicy(record.get("withinClusterQueue", "Never")),
        reclaim_within_cohort=reclaim,
        borrow_within_cohort=BorrowWithinCohort(
            policy=policy, max_priority_threshold=borrow.get("maxPriorityThreshold")
        ),
    )


def _checks(spec: Record, flavors: set[str]) -> tuple[AdmissionCheckRef, ...]:
    strategy = spec.record("admissionChecksStrategy").get("admissionChecks") or ()
    flat = spec.get("admissionChecks") or ()
    if strategy and flat:
        spec.at("admissionChecks").error("and admissionChecksStrategy say the same thing; keep admissionChecksStrategy")
    refs: list[AdmissionCheckRef] = [AdmissionCheckRef(name=name) for name in flat]
    for check in strategy:
        name, on = check.get("name", ""), check.get("onFlavors") or ()
        if any(ref.name == name for ref in refs[len(flat) :]):
            check.at("name").error(f'admission check "{name}" stands here twice; list its flavors together')
        for flavor in on:
            if flavor not in flavors:
                check.at("onFlavors").warn(f'flavor "{flavor}" is in no resource group of this queue')
        refs.append(AdmissionCheckRef(name=name, on_flavors=tuple(on)))
    return tuple(refs)


# Cohort, LocalQueue, WorkloadPriorityClass, AdmissionCheck ------------------------------------------------------------

_COHORT = Object(
    {
        "parentName": NAME,
        "parent": Field(NAME, now="parentName"),
        "resourceGroups": RESOURCE_GROUPS,
        "fairSharing": FAIR_SHARING,
    }
)
_LOCAL_QUEUE = Object(
    {
        "clusterQueue": Field(NAME, required=True),
        "stopPolicy": _STOP_POLICY,
        "fairSharing": Unread(_ON_ADMISSION_FAIR_SHARING),
    }
)
_ADMISSION_CHECK = Object(
    {
        "controllerName": Field(Text(), required=True),
        "parameters": Object({"apiGroup": Text(), "kind": Text(), "name": Text()}),
        "retryDelayMinutes": Anything(),  # v1beta1 kept it without effect
    }
)


def _cohort(header: Header, record: Record) -> Cohort:
    spec = record.record("spec")
    return Cohort(
        name=header.name,
        parent=spec.get("parentName"),
        resource_groups=resource_groups(spec, joined=spec.given("parentName"), join="spec.parentName", capped=False),
        fair_weight=fair_weight(spec),
    )


def _local_queue(header: Header, record: Record) -> LocalQueue:
    spec = record.record("spec")
    return LocalQueue(
        name=header.name,
        namespace=header.namespace,
        cluster_queue=spec.get("clusterQueue", ""),
        stop_policy=StopPolicy(spec.get("stopPolicy", "None")),
    )


def _workload_priority_class(header: Header, record: Record) -> PriorityClass:
    return PriorityClass(name=header.name, value=record.get("value", 0), description=record.get("description", ""))


def _admission_check(_: Header, record: Record) -> str:
    controller: str = record.record("spec").get("controllerName", "")
    return controller


KUEUE_KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(name="ResourceFlavor", versions=_VERSIONS, fields={"spec": _FLAVOR}, build=_flavor),
        Kind(name="ClusterQueue", versions=_VERSIONS, fields={"spec": _CLUSTER_QUEUE}, build=_cluster_queue),
        Kind(name="Cohort", versions=(*_VERSIONS, f"{GROUP}/v1alpha1"), fields={"spec": _COHORT}, build=_cohort),
        Kind(
            name="LocalQueue",
            versions=_VERSIONS,
            fields={"spec": Field(_LOCAL_QUEUE, required=True)},
            build=_local_queue,
            namespaced=True,
        ),
        Kind(
            name="WorkloadPriorityClass",
            versions=_VERSIONS,
            fields={"value": Field(Number(), required=True), "description": Text()},
            build=_workload_priority_class,
        ),
        Kind(
            name="AdmissionCheck",
            versions=_VERSIONS,
            fields={"spec": Field(_ADMISSION_CHECK, required=True)},
            build=_admission_check,
        ),
    )
}
