"""Kubernetes' own objects that a policy may hold: PriorityClass, Namespace, ResourceQuota, LimitRange."""

from __future__ import annotations

from collections.abc import Mapping

from tenure.domain.policy import LimitRange, Namespace, PriorityClass, ResourceQuota

from .kinds import Header, Kind
from .scalars import AmountText, Choice, Flag, Number, Text, amount_at
from .schema import Anything, Field, ListOf, MapOf, Object, Record, Refused, Unread
from .shapes import RESOURCE

__all__ = ["KUBERNETES_KINDS", "NAMESPACE_LABEL"]

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""Kubernetes puts every namespace's own name on it under this label, and selectors rely on it."""

HIGHEST_USER_PRIORITY = 1_000_000_000
_AMOUNTS = MapOf(key=RESOURCE, value_of=lambda _: AmountText())


def _priority_class(header: Header, record: Record) -> PriorityClass:
    value = record.get("value", 0)
    if value > HIGHEST_USER_PRIORITY and not header.name.startswith("system-"):
        record.at("value").error(
            f"{value} is kept for Kubernetes' own classes; at most {HIGHEST_USER_PRIORITY} would work"
        )
    if record.get("preemptionPolicy") == "Never":
        record.at("preemptionPolicy").warn("has no effect: whether a job preempts is its ClusterQueue's choice")
    return PriorityClass(
        name=header.name,
        value=value,
        description=record.get("description", ""),
        workload=False,
        global_default=record.get("globalDefault", False),
    )


def _namespace(header: Header, _: Record) -> Namespace:
    return Namespace(name=header.name, labels={**header.labels, NAMESPACE_LABEL: header.name})


_COUNTS_HERE = {"count/jobs.batch": "count/jobs", "count/jobs": "count/jobs"}


def _resource_quota(header: Header, record: Record) -> ResourceQuota:
    spec = record.record("spec")
    hard: dict[str, int] = {}
    amounts = spec.get("hard")
    for key, text in (amounts or {}).items():
        at = amounts.spots[key]
        name = _COUNTS_HERE.get(key) or (f"requests.{key}" if key in {"cpu", "memory"} else key)
        if not name.startswith("requests.") and name != "count/jobs":
            at.warn("has no effect on one machine; requests.<resource> and count/jobs.batch are what is counted")
            continue
        if name in hard:
            at.error(f"says the same as another entry for {name}; keep one")
        amount = amount_at(text, at, resource=name.removeprefix("requests."))
        if amount is not None:
            hard[name] = amount
    return ResourceQuota(name=header.name, namespace=header.namespace, hard=hard)


_LIMIT = Object(
    {
        "type": Field(Choice(("Container", "Pod", "PersistentVolumeClaim")), required=True),
        "defaultRequest": _AMOUNTS,
        "default": _AMOUNTS,
        "min": _AMOUNTS,
        "max": _AMOUNTS,
        "maxLimitRequestRatio": Unread("has no effect on one machine: only requests count"),
    }
)


def _limit_range(header: Header, record: Record) -> LimitRange:
    defaults: dict[str, int] = {}
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    seen = False
    for limit in record.record("spec").get("limits") or ():
        if limit.get("type") in {"Pod", "PersistentVolumeClaim"}:
            limit.spot.warn(f"limits of a {limit.get('type')} have no effect here; those of a Container have")
            continue
        if seen:
            limit.at("type").error("Container stands here twice; write its limits together")
        seen = True
        # A default limit is also the default request, unless that has one of its own (Kubernetes' defaulting).
        defaults = _amounts(limit, "default") | _amounts(limit, "defaultRequest")
        low, high = _amounts(limit, "min"), _amounts(limit, "max")
        for name in low.keys() & high.keys():
            if low[name] > high[name]:
                limit.at("min").error(f"{name} is more than in max")
        for name, amount in defaults.items():
            if amount < low.get(name, amount) or amount > high.get(name, amount):
                limit.at("defaultRequest").error(f"{name} lies outside min and max")
    return LimitRange(
        name=header.name, namespace=header.namespace, default_requests=defaults, minimum=low, maximum=high
    )


def _amounts(limit: Record, field: str) -> dict[str, int]:
    pairs = limit.get(field)
    if pairs is None:
        return {}
    read = {key: amount_at(text, pairs.spots[key], resource=key) for key, text in pairs.items()}
    return {key: amount for key, amount in read.items() if amount is not None}


KUBERNETES_KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            name="PriorityClass",
            versions=("scheduling.k8s.io/v1",),
            fields={
                "value": Field(Number(), required=True),
                "globalDefault": Flag(),
                "description": Text(),
                "preemptionPolicy": Choice(("PreemptLowerPriority", "Never")),
            },
            build=_priority_class,
        ),
        Kind(
            name="Namespace",
            versions=("v1",),
            fields={"spec": Object({"finalizers": Anything()})},
            build=_namespace,
        ),
        Kind(
            name="ResourceQuota",
            versions=("v1",),
            fields={
                "spec": Object(
                    {
                        "hard": _AMOUNTS,
                        "scopes": Refused(
                            "a quota for some jobs only is not read here; write one for all, or leave it out"
                        ),
                        "scopeSelector": Refused(
                            "a quota for some jobs only is not read here; write one for all, or leave it out"
                        ),
                    }
                )
            },
            build=_resource_quota,
            namespaced=True,
        ),
        Kind(
            name="LimitRange",
            versions=("v1",),
            fields={"spec": Object({"limits": Field(ListOf(item=_LIMIT), required=True)})},
            build=_limit_range,
            namespaced=True,
        ),
    )
}
