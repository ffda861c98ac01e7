"""Who borrows how much of what could be lent, from a policy and what its queues use: Kueue's weighted share.

Pure, and apart from the live state, so that monitoring may ask without holding anybody up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tenure.domain.explanation import QueueUsage
from tenure.domain.policy import Policy, StopPolicy

from .quota import Pair, Tree
from .shares import share_of

__all__ = ["CohortShare", "Fairness"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortShare:
    """A cohort as its tree counts it: `quota` is what it and those below it own and would lend, `used` what of that is
    in use, both by (flavor, resource); `queues` are all below it."""

    name: str
    weighted_share: float
    quota: Mapping[Pair, int]
    used: Mapping[Pair, int]
    queues: tuple[str, ...]


class Fairness:
    """One policy's tree, asked again and again.  Not for two threads at once."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._tree = Tree.of(policy)
        self._added: list[tuple[str, int, int]] = []

    def weighted_shares(self, usage: Iterable[QueueUsage]) -> Mapping[str, float]:
        """Per cluster queue: the highest ratio, in thousandths, of what it borrows of a resource to what its parent
        could lend of it, over its weight; 0 within its own quota, infinite where it borrows with weight 0."""
        tree = self._tree
        for name, i, amount in self._added:
            tree.queues[name].remove(i, amount)
        self._added = [
            (row.cluster_queue, tree.index[row.flavor, row.resource], row.used)
            for row in usage
            if row.used and row.cluster_queue in tree.queues and (row.flavor, row.resource) in tree.index
        ]
        for name, i, amount in self._added:
            tree.queues[name].add(i, amount)
        return {name: share_of(node, tree.pairs).weighted for name, node in tree.queues.items()}

    def cohorts(self) -> tuple[CohortShare, ...]:
        """Every cohort, declared or only named, with the usage that was given last."""
        tree = self._tree
        return tuple(
            CohortShare(
                name=name,
                weighted_share=share_of(node, tree.pairs).weighted,
                quota={pair: node.subtree[i] for i, pair in enumerate(tree.pairs) if node.subtree[i]},
                used={pair: node.usage[i] for i, pair in enumerate(tree.pairs) if node.subtree[i] or node.usage[i]},
                queues=tuple(queue.name for queue in node.queues()),
            )
            for name, node in sorted(tree.cohorts.items())
        )

    def is_active(self, cluster_queue: str) -> bool:
        """Whether the queue could admit at all: not stopped, nothing that it names missing, its cohorts no circle."""
        queue = self.policy.cluster_queues[cluster_queue]
        flavors = {flavor.flavor for group in queue.resource_groups for flavor in group.flavors}
        return (
            queue.stop_policy is StopPolicy.NONE
            and flavors <= self.policy.flavors.keys()
            and {check.name for check in queue.admission_checks} <= self.policy.admission_checks.keys()
            and queue.cohort not in self._tree.cyclic
        )
