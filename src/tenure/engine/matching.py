"""May a pod set use a flavor at all?  Taints, node selectors and required node affinity, as Kueue reads them.

Only the flavor's own label keys count: a selector on a key that the flavor does not carry is not held against it, and
a term left without expressions matches anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenure.domain.policy import Flavor, LabelRequirement, LabelSelector, Taint, Toleration
from tenure.domain.workload import PodSet

__all__ = ["matches_selector", "why_not"]


def why_not(pod_set: PodSet, flavor: Flavor) -> str | None:
    """The reason in Kueue's words, or None where the flavor is eligible."""
    for taint in flavor.node_taints:
        if taint.effect not in ("NoSchedule", "NoExecute"):
            continue
        if not any(_tolerates(t, taint) for t in (*pod_set.tolerations, *flavor.tolerations)):
            return f"untolerated taint {_spell(taint)} in flavor {flavor.name}"
    labels = flavor.node_labels
    if any(labels[key] != value for key, value in pod_set.node_selector.items() if key in labels):
        return f"flavor {flavor.name} doesn't match node affinity"
    terms = [tuple(e for e in term.expressions if e.key in labels) for term in pod_set.affinity_terms]
    if terms and all(terms) and not any(all(_holds(e, labels) for e in term) for term in terms):
        return f"flavor {flavor.name} doesn't match node affinity"
    return None


def matches_selector(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """An empty selector matches everything; an absent one nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_holds(e, labels) for e in selector.match_expressions)


def _tolerates(t: Toleration, taint: Taint) -> bool:
    if t.effect and t.effect != taint.effect:
        return False
    if t.key and t.key != taint.key:
        return False
    if t.operator == "Exists":
        return True
    return bool(t.key) and t.value == taint.value


def _holds(e: LabelRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(e.key)
    match e.operator:
        case "In":
            return value is not None and value in e.values
        case "NotIn":
            return value is None or value not in e.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(e, value)
    return False


def _compares(e: LabelRequirement, value: str | None) -> bool:
    bounds: Sequence[str] = e.values
    try:
        number, bound = int(value or ""), int(bounds[0])
    except (ValueError, IndexError):
        return False
    return number > bound if e.operator == "Gt" else number < bound


def _spell(taint: Taint) -> str:
    return "{" + f"{taint.key} {taint.value} {taint.effect} <nil>" + "}"
