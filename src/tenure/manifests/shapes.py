"""The shapes that Kubernetes' objects share: metadata, labels, taints, tolerations, selectors, node affinity."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tenure.domain.policy import LabelRequirement, LabelSelector, Taint, Toleration
from tenure.domain.workload import NodeSelectorTerm

from .scalars import Choice, Text
from .schema import Anything, Field, ListOf, MapOf, Object, Record, Unread
from .spots import Pairs

__all__ = [
    "LABELS",
    "LABEL_SELECTOR",
    "METADATA",
    "NAME",
    "NODE_AFFINITY",
    "RESOURCE",
    "TAINT",
    "TOLERATION",
    "affinity_terms",
    "label_selector",
    "requirement",
    "taint",
    "toleration",
]

_DNS = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_QUALIFIED = rf"(?:{_DNS}(?:\.{_DNS})*/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"

NAME = Text(
    pattern=re.compile(rf"{_DNS}(?:\.{_DNS})*"),
    rule="a name has lower-case letters, digits, '-' and '.', and begins and ends with a letter or digit",
    max_length=253,
)
RESOURCE = Text(
    pattern=re.compile(_QUALIFIED),
    rule="a resource is named like cpu, memory or nvidia.com/gpu",
    max_length=317,
)
LABEL_KEY = Text(pattern=re.compile(_QUALIFIED), rule="a label is named like team or example.com/team", max_length=317)
LABEL_VALUE = Text(
    pattern=re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"),
    rule="a label's value has letters, digits, '-', '_' and '.', and begins and ends with a letter or digit",
    max_length=63,
)
LABELS = MapOf(key=LABEL_KEY, value_of=lambda _: LABEL_VALUE)
ANNOTATIONS = MapOf(value_of=lambda _: Text())

_KEPT_BY_KUBERNETES = (
    "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
    "managedFields", "finalizers", "ownerReferences", "selfLink",
)  # fmt: skip
METADATA = Object(
    {
        "name": NAME,
        "generateName": Text(),
        "namespace": NAME,
        "labels": LABELS,
        "annotations": ANNOTATIONS,
        **{name: Anything() for name in _KEPT_BY_KUBERNETES},
    }
)

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TAINT = Object(
    {
        "key": Field(LABEL_KEY, required=True),
        "value": LABEL_VALUE,
        "effect": Field(Choice(_EFFECTS), required=True),
        "timeAdded": Anything(),
    }
)
TOLERATION = Object(
    {
        "key": LABEL_KEY,
        "operator": Choice(("Equal", "Exists")),
        "value": LABEL_VALUE,
        "effect": Choice(_EFFECTS),
        "tolerationSeconds": Unread("has no effect on one machine: a taint here never ends what runs"),
    }
)

_SELECTOR_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
LABEL_SELECTOR = Object(
    {
        "matchLabels": LABELS,
        "matchExpressions": ListOf(
            item=Object(
                {
                    "key": Field(LABEL_KEY, required=True),
                    "operator": Field(Choice(_SELECTOR_OPERATORS), required=True),
                    "values": ListOf(item=LABEL_VALUE),
                }
            )
        ),
    }
)

_NODE_TERM = Object(
    {
        "matchExpressions": ListOf(
            item=Object(
                {
                    "key": Field(LABEL_KEY, required=True),
                    "operator": Field(Choice((*_SELECTOR_OPERATORS, "Gt", "Lt")), required=True),
                    "values": ListOf(item=Text()),
                }
            )
        ),
        "matchFields": Unread("has no effect on one machine"),
    }
)
NODE_AFFINITY = Object(
    {
        "requiredDuringSchedulingIgnoredDuringExecution": Object(
            {"nodeSelectorTerms": Field(ListOf(item=_NODE_TERM, low=1), required=True)}
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": Unread("is a wish, and quota follows only what is required"),
    }
)


def plain(pairs: Pairs | None) -> Mapping[str, str]:
    """A mapping as read, without its places."""
    return dict(pairs or {})


def taint(record: Record) -> Taint:
    return Taint(key=record.get("key", ""), value=record.get("value", ""), effect=record.get("effect", "NoSchedule"))


def toleration(record: Record) -> Toleration:
    """Kubernetes' rules: `Exists` has no value; only `Exists` may leave the key out."""
    operator = record.get("operator", "Equal")
    if operator == "Exists" and record.get("value"):
        record.at("value").error("operator Exists takes no value; remove it, or write operator: Equal")
    if operator == "Equal" and not record.given("key"):
        record.at("key").error("is required with operator Equal; operator: Exists without a key tolerates everything")
    if record.given("tolerationSeconds") and record.get("effect") != "NoExecute":
        record.at("tolerationSeconds").error("works only with effect: NoExecute")
    return Toleration(
        key=record.get("key", ""), operator=operator, value=record.get("value", ""), effect=record.get("effect", "")
    )


def requirement(record: Record) -> LabelRequirement:
    """One expression.  In and NotIn need values, Exists and DoesNotExist take none, Gt and Lt take one whole number."""
    operator, values = record.get("operator", ""), tuple(record.get("values") or ())
    if operator in {"In", "NotIn"} and not values:
        record.at("values").error(f"operator {operator} needs at least one value")
    if operator in {"Exists", "DoesNotExist"} and values:
        record.at("values").error(f"operator {operator} takes no values")
    if operator in {"Gt", "Lt"} and (len(values) != 1 or not re.fullmatch(r"-?[0-9]{1,18}", values[0])):
        record.at("values").error(f"operator {operator} takes one whole number, in quotes")
    return LabelRequirement(key=record.get("key", ""), operator=operator, values=values)


def label_selector(record: Record) -> LabelSelector:
    return LabelSelector(
        match_labels=plain(record.get("matchLabels")),
        match_expressions=tuple(requirement(r) for r in record.get("matchExpressions") or ()),
    )


def affinity_terms(node_affinity: Record) -> tuple[NodeSelectorTerm, ...]:
    required = node_affinity.record("requiredDuringSchedulingIgnoredDuringExecution")
    return tuple(
        NodeSelectorTerm(expressions=tuple(requirement(r) for r in term.get("matchExpressions") or ()))
        for term in required.get("nodeSelectorTerms") or ()
    )
