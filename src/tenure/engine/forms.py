"""The form of a workload: all that decides where it fits, and nothing about who it is.

Workloads of equal form share one `Form`, so that equals can be parked together and their requests are worked out once
for each cluster queue (`Demand`).  Amounts are per process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from weakref import WeakValueDictionary

from tenure.domain.amounts import CPU, GPU, GPU_MEMORY, PODS, parse_decimal, whole_amount
from tenure.domain.ids import CardId
from tenure.domain.policy import ClusterQueue, Policy, QuotaCheckStrategy, ResourceGroup, Transformation
from tenure.domain.workload import PodSet, Workload

from .matching import why_not
from .spelling import resource_order

__all__ = ["Demand", "Form", "Forms", "GroupDemand", "PodDemand", "effective_requests", "whole_card_amount"]


class Form:
    """Compared by identity; `Forms.of` gives equals the same one."""

    __slots__ = ("__weakref__", "avoid", "demands", "epoch", "pod_sets", "priority", "reducible", "whole_card")

    def __init__(
        self, priority: int, pod_sets: tuple[PodSet, ...], *, whole_card: bool, avoid: frozenset[CardId]
    ) -> None:
        self.priority = priority
        self.pod_sets = pod_sets
        self.whole_card = whole_card
        self.avoid = avoid
        self.reducible = any(p.min_count is not None and p.min_count < p.count for p in pod_sets)
        self.demands: dict[str, Demand] = {}
        self.epoch = -1


@dataclass(frozen=True, slots=True)
class GroupDemand:
    """What one pod set asks of one resource group.  `barred[k]` says why flavor k is out of the question, or None."""

    group: ResourceGroup
    amounts: tuple[tuple[str, int], ...]
    barred: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class PodDemand:
    """`missing` is the first requested resource that no group covers, in the order of the walk, with the number of
    groups that come before it; None where all is covered.  `card` is what a process needs of the card it is placed on,
    in shares and bytes, whether or not the queue counts them."""

    pod_set: PodSet
    amounts: Mapping[str, int]
    card: tuple[int, int]
    groups: tuple[GroupDemand, ...]
    missing: tuple[int, str] | None


@dataclass(frozen=True, slots=True)
class Demand:
    pod_sets: tuple[PodDemand, ...]


@dataclass(slots=True)
class Forms:
    """All forms in use, interned; and what they demand of each queue under the present policy."""

    epoch: int = 0
    _known: WeakValueDictionary[object, Form] = field(default_factory=WeakValueDictionary)

    def of(self, w: Workload) -> Form:
        key = (w.priority, w.whole_card, w.avoid, tuple(_shape(p) for p in w.pod_sets))
        form = self._known.get(key)
        if form is None:
            form = self._known[key] = Form(w.priority, w.pod_sets, whole_card=w.whole_card, avoid=w.avoid)
        return form

    def demand(self, form: Form, queue: ClusterQueue, policy: Policy) -> Demand:
        if form.epoch != self.epoch:
            form.demands = {}
            form.epoch = self.epoch
        known = form.demands.get(queue.name)
        if known is None:
            known = form.demands[queue.name] = Demand(tuple(_demand(p, queue, policy) for p in form.pod_sets))
        return known

    def policy_changed(self) -> None:
        self.epoch += 1


def _shape(p: PodSet) -> object:
    return (
        p.name, p.count, p.min_count, tuple(sorted(p.requests.items())), tuple(sorted(p.node_selector.items())),
        p.affinity_terms, p.tolerations,
    )  # fmt: skip


def _demand(pod_set: PodSet, queue: ClusterQueue, policy: Policy) -> PodDemand:
    amounts = effective_requests(pod_set, policy)
    group_of = {resource: g for g in queue.resource_groups for resource in g.covered_resources}
    if PODS in group_of:
        amounts[PODS] = 1
    missing: tuple[int, str] | None = None
    groups: list[ResourceGroup] = []
    for resource in sorted(amounts, key=resource_order):
        group = group_of.get(resource)
        if group is None:
            ignored = policy.quota_check is QuotaCheckStrategy.IGNORE_UNDECLARED
            if amounts[resource] and not ignored and missing is None:
                missing = (len(groups), resource)
        elif group not in groups:
            groups.append(group)
    return PodDemand(
        pod_set,
        {r: amounts[r] for r in amounts if r in group_of},
        (amounts.get(GPU, 0), amounts.get(GPU_MEMORY, 0)),
        tuple(_group_demand(pod_set, amounts, g, policy) for g in groups),
        missing,
    )


def _group_demand(pod_set: PodSet, amounts: Mapping[str, int], group: ResourceGroup, policy: Policy) -> GroupDemand:
    asked = tuple((r, amounts[r]) for r in sorted(amounts, key=resource_order) if r in group.covered_resources)
    barred = []
    for quotas in group.flavors:
        flavor = policy.flavors.get(quotas.flavor)
        barred.append(f"flavor {quotas.flavor} not found" if flavor is None else why_not(pod_set, flavor))
    return GroupDemand(group, asked, tuple(barred))


def effective_requests(pod_set: PodSet, policy: Policy) -> dict[str, int]:
    """One process's requests after excluded prefixes and transformations."""
    prefixes = policy.exclude_resource_prefixes
    asked = {r: n for r, n in pod_set.requests.items() if not (prefixes and r.startswith(prefixes))}
    if not policy.transformations:
        return asked
    return _transform(asked, policy.transformations)


def _transform(asked: dict[str, int], rules: Sequence[Transformation]) -> dict[str, int]:
    """Products are rounded up once, at the end; what the rules generate never goes below zero.

    A product beyond 64 bits is more than any quota: its workload waits as one that asks for too much, as in Kueue.
    """
    by_input = {rule.input: rule for rule in rules}
    total = {r: _exact(r, n) for r, n in asked.items() if r not in by_input or not by_input[r].replace}
    generated: dict[str, Decimal] = {}
    for resource, amount in asked.items():
        rule = by_input.get(resource)
        if rule is None:
            continue
        factor = _exact(resource, amount)
        if rule.multiply_by is not None and rule.multiply_by in asked:
            factor *= _exact(rule.multiply_by, asked[rule.multiply_by])
        for output, each in rule.outputs.items():
            generated[output] = generated.get(output, Decimal(0)) + factor * parse_decimal(each)
    for output, value in generated.items():
        total[output] = total.get(output, Decimal(0)) + max(value, Decimal(0))
    return {r: whole_amount(value, resource=r) for r, value in total.items()}


def _exact(resource: str, amount: int) -> Decimal:
    return Decimal(amount) / 1000 if resource == CPU else Decimal(amount)


def whole_card_amount(resource: str, amount: int, shares: int | None) -> int:
    """A process that takes a whole card pays for all its shares, however many that card has."""
    return shares if resource == GPU and shares is not None else amount
