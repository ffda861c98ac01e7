"""Dominant resource share: how unfairly much a node borrows of what its parent could lend.

Used by fair sharing alone, to order entries and to choose victims.  Ratios are in thousandths, as in Kueue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .quota import Node, Pair

__all__ = ["NO_SHARE", "Share", "compare", "share_of"]


@dataclass(frozen=True, slots=True)
class Share:
    """`ratio` is unweighted; `borrowed` are the pairs used beyond the node's own quota."""

    weight: float
    ratio: float
    borrowed: tuple[int, ...] = ()

    @property
    def borrowing(self) -> bool:
        return bool(self.borrowed)

    @property
    def weighted(self) -> float:
        if self.ratio == 0:
            return 0.0
        return float("inf") if self.weight == 0 else self.ratio / self.weight

    def borrowing_on(self, wanted: Mapping[int, int]) -> bool:
        return any(wanted.get(i, 0) > 0 for i in self.borrowed)

    @property
    def _free_rider(self) -> bool:
        return self.weight == 0 and self.ratio != 0


NO_SHARE = Share(weight=1.0, ratio=-1.0)
"""Below every real share: the start of a search for the highest."""


def share_of(node: Node, pairs: list[Pair]) -> Share:
    """The share of a node as the tree stands.  A node without a parent has none to answer to: always 0."""
    parent = node.parent
    if parent is None:
        return Share(node.weight, 0.0)
    amounts: dict[str, int] = {}
    borrowed = []
    subtree = node.subtree
    for i, used in enumerate(node.usage):
        over = used - subtree[i]
        if over > 0:
            resource = pairs[i][1]
            amounts[resource] = amounts.get(resource, 0) + over
            borrowed.append(i)
    ratio = 0.0
    for resource, amount in amounts.items():
        lendable = parent.lendable.get(resource, 0)
        if lendable > 0:
            ratio = max(ratio, amount * 1000.0 / lendable)
    return Share(node.weight, ratio, tuple(borrowed))


def compare(a: Share, b: Share) -> int:
    """-1, 0 or 1.  Among borrowers of weight 0 the plain ratio decides; such a borrower is above everyone else."""
    first: float
    second: float
    if a._free_rider and b._free_rider:
        first, second = a.ratio, b.ratio
    elif a._free_rider:
        return 1
    elif b._free_rider:
        return -1
    else:
        first, second = a.weighted, b.weighted
    return (first > second) - (first < second)
