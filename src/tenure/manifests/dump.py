"""A `Policy` as Kueue v1beta2 YAML.  Reading it back gives the same policy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from tenure.domain.amounts import format_quantity
from tenure.domain.options import EngineOptions
from tenure.domain.policy import (
    ClusterQueue,
    Cohort,
    Flavor,
    LabelRequirement,
    LabelSelector,
    LimitRange,
    Policy,
    PriorityClass,
    QuotaCheckStrategy,
    ResourceGroup,
    ResourceQuota,
    StopPolicy,
    Toleration,
)

from .durations import format_duration
from .kubernetes import NAMESPACE_LABEL
from .options import OPTIONS_VERSION
from .yaml_scalars import meaning

__all__ = ["dump_policy", "dump_trees"]

KUEUE = "kueue.x-k8s.io/v1beta2"
Tree = dict[str, Any]


def dump_policy(policy: Policy) -> str:
    """Every object of the policy as one multi-document text.  Fields that are at their default are left out."""
    return dump_trees(_objects(policy))


def dump_trees(trees: Iterable[Tree]) -> str:
    """Documents as one text that this house reads back as they are."""
    return "---\n".join(
        yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False) for tree in trees
    )


class _Dumper(yaml.SafeDumper):
    """Quotes every text that a reader could take for something else (`1e3`, `0o17`, `yes`)."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "'" if re.fullmatch(r"[-+.~\w]*", text) and not isinstance(meaning(text, 0), str) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _objects(policy: Policy) -> Iterator[Tree]:
    if (configuration := _configuration(policy)) is not None:
        yield configuration
    if policy.engine_options is not None:
        yield {"apiVersion": OPTIONS_VERSION, "kind": "EngineOptions", "spec": _engine_options(policy.engine_options)}
    for namespace in policy.namespaces.values():
        labels = {k: v for k, v in namespace.labels.items() if k != NAMESPACE_LABEL}
        yield _object("v1", "Namespace", namespace.name, labels=labels)
    for flavor in policy.flavors.values():
        yield _object(KUEUE, "ResourceFlavor", flavor.name, spec=_flavor(flavor))
    for check, controller in policy.admission_checks.items():
        yield _object(KUEUE, "AdmissionCheck", check, spec={"controllerName": controller})
    for cohort in policy.cohorts.values():
        yield _object(KUEUE, "Cohort", cohort.name, spec=_cohort(cohort))
    for queue in policy.cluster_queues.values():
        yield _object(KUEUE, "ClusterQueue", queue.name, spec=_cluster_queue(queue))
    for local in policy.local_queues.values():
        spec: Tree = {"clusterQueue": local.cluster_queue, **_stop(local.stop_policy)}
        yield _object(KUEUE, "LocalQueue", local.name, namespace=local.namespace, spec=spec)
    for name in policy.workload_priority_classes.values():
        yield {**_object(KUEUE, "WorkloadPriorityClass", name.name), **_class(name)}
    for name in policy.priority_classes.values():
        default = {"globalDefault": True} if name.global_default else {}
        yield {**_object("scheduling.k8s.io/v1", "PriorityClass", name.name), **_class(name), **default}
    for quota in policy.resource_quotas:
        yield _object("v1", "ResourceQuota", quota.name, namespace=quota.namespace, spec=_quota(quota))
    for limits in policy.limit_ranges:
        yield _object("v1", "LimitRange", limits.name, namespace=limits.namespace, spec=_limits(limits))


def _object(
    version: str,
    kind: str,
    name: str,
    *,
    namespace: str | None = None,
    labels: Mapping[str, str] | None = None,
    spec: Tree | None = None,
) -> Tree:
    metadata: Tree = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **({"spec": spec} if spec else {})}


def _stop(policy: StopPolicy) -> Tree:
    return {} if policy is StopPolicy.NONE else {"stopPolicy": policy.value}


def _class(value: PriorityClass) -> Tree:
    return {"value": value.value, **({"description": value.description} if value.description else {})}


def _flavor(flavor: Flavor) -> Tree:
    spec: Tree = {}
    if flavor.node_labels:
        spec["nodeLabels"] = dict(flavor.node_labels)
    if flavor.node_taints:
        spec["nodeTaints"] = [
            {"key": t.key, **({"value": t.value} if t.value else {}), "effect": t.effect} for t in flavor.node_taints
        ]
    if flavor.tolerations:
        spec["tolerations"] = [_toleration(t) for t in flavor.tolerations]
    if flavor.topology_name is not None:
        spec["topologyName"] = flavor.topology_name
    return spec


def _toleration(toleration: Toleration) -> Tree:
    parts = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    # An Equal toleration needs its key, even where it is empty; every other empty part is a default.
    return {k: v for k, v in parts.items() if v or (k == "key" and toleration.operator == "Equal")}


def _groups(groups: tuple[ResourceGroup, ...]) -> Tree:
    if not groups:
        return {}
    return {"resourceGroups": [_group(g) for g in groups]}


def _group(group: ResourceGroup) -> Tree:
    flavors: list[Tree] = []
    for row in group.flavors:
        resources: list[Tree] = []
        for name, quota in row.resources.items():
            item: Tree = {"name": name, "nominalQuota": format_quantity(quota.nominal, resource=name)}
            if quota.borrowing_limit is not None:
                item["borrowingLimit"] = format_quantity(quota.borrowing_limit, resource=name)
            if quota.lending_limit is not None:
                item["lendingLimit"] = format_quantity(quota.lending_limit, resource=name)
            resources.append(item)
        flavors.append({"name": row.flavor, "resources": resources})
    return {"coveredResources": list(group.covered_resources), "flavors": flavors}


def _weight(weight: float) -> Tree:
    if weight == 1.0:
        return {}
    return {"fairSharing": {"weight": str(int(weight)) if weight == int(weight) and weight < 1e15 else repr(weight)}}


def _cohort(cohort: Cohort) -> Tree:
    parent = {} if cohort.parent is None else {"parentName": cohort.parent}
    return {**parent, **_groups(cohort.resource_groups), **_weight(cohort.fair_weight)}


def _cluster_queue(queue: ClusterQueue) -> Tree:
    spec: Tree = {}
    if queue.cohort is not None:
        spec["cohortName"] = queue.cohort
    if queue.namespace_selector is not None:
        spec["namespaceSelector"] = _selector(queue.namespace_selector)
    spec["queueingStrategy"] = queue.queueing_strategy.value
    spec |= _groups(queue.resource_groups)
    spec["preemption"] = _preemption(queue)
    fungibility = queue.fungibility
    spec["flavorFungibility"] = {
        "whenCanBorrow": fungibility.when_can_borrow.value,
        "whenCanPreempt": fungibility.when_can_preempt.value,
        **({"preference": fungibility.preference.value} if fungibility.preference else {}),
    }
    spec |= _stop(queue.stop_policy) | _weight(queue.fair_weight)
    if queue.admission_checks:
        spec["admissionChecksStrategy"] = {
            "admissionChecks": [
                {"name": ref.name, **({"onFlavors": list(ref.on_flavors)} if ref.on_flavors else {})}
                for ref in queue.admission_checks
            ]
        }
    return spec


def _preemption(queue: ClusterQueue) -> Tree:
    preemption = queue.preemption
    borrow: Tree = {"policy": preemption.borrow_within_cohort.policy.value}
    if preemption.borrow_within_cohort.max_priority_threshold is not None:
        borrow["maxPriorityThreshold"] = preemption.borrow_within_cohort.max_priority_threshold
    return {
        "withinClusterQueue": preemption.within_cluster_queue.value,
        "reclaimWithinCohort": preemption.reclaim_within_cohort.value,
        "borrowWithinCohort": borrow,
    }


def _selector(selector: LabelSelector) -> Tree:
    tree: Tree = {}
    if selector.match_labels:
        tree["matchLabels"] = dict(selector.match_labels)
    if selector.match_expressions:
        tree["matchExpressions"] = [_requirement(r) for r in selector.match_expressions]
    return tree


def _requirement(requirement: LabelRequirement) -> Tree:
    values = {"values": list(requirement.values)} if requirement.values else {}
    return {"key": requirement.key, "operator": requirement.operator, **values}


def _quota(quota: ResourceQuota) -> Tree:
    """`count/jobs` is Kubernetes' `count/jobs.batch`."""
    return {
        "hard": {
            ("count/jobs.batch" if key == "count/jobs" else key): format_quantity(
                amount, resource=key.removeprefix("requests.")
            )
            for key, amount in quota.hard.items()
        }
    }


def _limits(limits: LimitRange) -> Tree:
    item: Tree = {"type": "Container"}
    for name, amounts in (
        ("defaultRequest", limits.default_requests),
        ("min", limits.minimum),
        ("max", limits.maximum),
    ):
        if amounts:
            item[name] = {key: format_quantity(amount, resource=key) for key, amount in amounts.items()}
    return {"limits": [item]}


def _configuration(policy: Policy) -> Tree | None:
    tree: Tree = {}
    if policy.fair_sharing is not None:
        tree["fairSharing"] = {"preemptionStrategies": [s.value for s in policy.fair_sharing.preemption_strategies]}
    if policy.wait_for_pods_ready is not None:
        wait = policy.wait_for_pods_ready
        requeuing: Tree = {
            "timestamp": wait.requeuing_timestamp,
            "backoffBaseSeconds": int(wait.backoff_base_s),
            "backoffMaxSeconds": int(wait.backoff_max_s),
        }
        if wait.backoff_limit_count is not None:
            requeuing["backoffLimitCount"] = wait.backoff_limit_count
        tree["waitForPodsReady"] = {"timeout": format_duration(wait.timeout_s), "requeuingStrategy": requeuing}
    if resources := _resources(policy):
        tree["resources"] = resources
    return {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **tree} if tree else None


def _engine_options(options: EngineOptions) -> Tree:
    tree: Tree = {} if options.shrink_gangs else {"shrinkGangs": False}
    if options.min_runtime_us:
        tree["minRuntime"] = _span(options.min_runtime_us)
    if options.reserve_after_us is not None:
        tree["reserveAfter"] = _span(options.reserve_after_us)
    if options.ageing is not None:
        ageing = options.ageing
        tree["ageing"] = {"every": _span(ageing.every_us), "step": ageing.step, "most": ageing.most}
    if options.livelock is not None:
        tree["livelock"] = {"takes": options.livelock.takes, "within": _span(options.livelock.within_us)}
    return tree


def _span(us: int) -> str:
    return format_duration(us // 1_000_000 if us % 1_000_000 == 0 else us / 1e6)


def _resources(policy: Policy) -> Tree:
    tree: Tree = {}
    if policy.exclude_resource_prefixes:
        tree["excludeResourcePrefixes"] = list(policy.exclude_resource_prefixes)
    if policy.transformations:
        tree["transformations"] = [
            {
                "input": t.input,
                "strategy": "Replace" if t.replace else "Retain",
                **({"multiplyBy": t.multiply_by} if t.multiply_by is not None else {}),
                **({"outputs": dict(t.outputs)} if t.outputs else {}),
            }
            for t in policy.transformations
        ]
    if policy.quota_check is not QuotaCheckStrategy.BLOCK_UNDECLARED:
        tree["quotaCheckStrategy"] = policy.quota_check.value
    return tree
