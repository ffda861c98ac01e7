"""Who borrowed from whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tenure.domain.amounts import GPU, GPU_MEMORY
from tenure.domain.policy import Policy

from .facts import SLOTS, Facts, Hold, Slots

__all__ = ["lending"]


def lending(facts: Facts, holds: Sequence[Hold], width: float) -> list[dict[str, Any]]:
    """Per cluster queue: used, borrowed and lent shares and memory.  A pool has no addresses: each idle queue of a cohort
    lends its part in proportion to what it could."""
    policy = facts.policy
    used = {q: {GPU: Slots(facts.since, width), GPU_MEMORY: Slots(facts.since, width)} for q in policy.cluster_queues}
    for hold in holds:
        if hold.queue in used:
            for _, s, m in hold.places:
                used[hold.queue][GPU].add(hold.begin, hold.end, s)
                used[hold.queue][GPU_MEMORY].add(hold.begin, hold.end, m)
    nominal = {q: _nominal(policy, q) for q in policy.cluster_queues}
    roots = {q: _root(policy, q) for q in policy.cluster_queues}
    shown = []
    for name in policy.cluster_queues:
        entry: dict[str, Any] = {"queue": name, "cohort": policy.cluster_queues[name].cohort}
        for resource, word, digits in ((GPU, "shares", 3), (GPU_MEMORY, "memory", 0)):
            mine = used[name][resource].sums
            over = [max(0.0, v - nominal[name][resource]) for v in mine]
            family = [q for q in policy.cluster_queues if roots[q] == roots[name] and roots[q] is not None]
            lent = [_lent(slot, name, family, used, nominal, resource) for slot in range(SLOTS)]
            entry[word] = {
                "nominal": nominal[name][resource],
                "used": [round(v, digits) for v in mine],
                "borrowed": [round(v, digits) for v in over],
                "lent": [round(v, digits) for v in lent],
            }
        shown.append(entry)
    return shown


def _lent(
    slot: int,
    name: str,
    family: Sequence[str],
    used: Mapping[str, Mapping[str, Slots]],
    nominal: Mapping[str, Counter[str]],
    resource: str,
) -> float:
    gaps = {q: nominal[q][resource] - used[q][resource].sums[slot] for q in family}
    borrowed = sum(-gap for gap in gaps.values() if gap < 0)
    idle = sum(gap for gap in gaps.values() if gap > 0)
    mine = gaps.get(name, 0)
    return 0.0 if mine <= 0 or idle <= 0 else min(borrowed, idle) * mine / idle


def _nominal(policy: Policy, queue: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for group in policy.cluster_queues[queue].resource_groups:
        for flavor in group.flavors:
            total.update({resource: quota.nominal for resource, quota in flavor.resources.items()})
    return total


def _root(policy: Policy, queue: str) -> str | None:
    cohort = policy.cluster_queues[queue].cohort
    seen: set[str] = set()
    while cohort is not None and cohort not in seen:
        seen.add(cohort)
        above = policy.cohorts.get(cohort)
        if above is None or above.parent is None:
            return cohort
        cohort = above.parent
    return cohort
