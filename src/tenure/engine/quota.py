"""The quota tree: what every queue owns, may borrow, must keep and has in use.

Promises that usage is always the sum of what was added, at every level, and that `remove` undoes `add` exactly, so a
cycle may try things on the live tree and take them back.  Amounts are integers; a (flavor, resource) pair is an index.
Rules: Kueue's quota arithmetic with hierarchical cohorts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tenure.domain.policy import Policy, ResourceGroup

__all__ = ["Node", "Pair", "Tree", "Usage"]

Pair = tuple[str, str]
"""A flavor and a resource."""
Usage = dict[int, int]
"""Amounts by index of their (flavor, resource) pair."""


class Node:
    """A cluster queue or a cohort.  The lists are indexed by pair; `local` is what is never lent out."""

    __slots__ = (
        "borrow", "cohort_children", "height", "is_queue", "lend", "lendable", "local", "name", "nominal",
        "parent", "potential", "queue_children", "subtree", "usage", "weight",
    )  # fmt: skip

    def __init__(self, name: str, *, is_queue: bool, size: int, weight: float) -> None:
        self.name = name
        self.is_queue = is_queue
        self.weight = weight
        self.parent: Node | None = None
        self.cohort_children: list[Node] = []
        self.queue_children: list[Node] = []
        self.nominal = [0] * size
        self.borrow: list[int | None] = [None] * size
        self.lend: list[int | None] = [None] * size
        self.subtree = [0] * size
        self.local = [0] * size
        self.usage = [0] * size
        self.potential = [0] * size
        self.lendable: dict[str, int] = {}
        self.height = 0

    def local_available(self, i: int) -> int:
        free = self.local[i] - self.usage[i]
        return free if free > 0 else 0

    def raw_available(self, i: int) -> int:
        """What is left here and above, within every borrowing limit on the way; negative when over-committed."""
        parent = self.parent
        if parent is None:
            return self.subtree[i] - self.usage[i]
        above = parent.raw_available(i)
        local, used = self.local[i], self.usage[i]
        limit = self.borrow[i]
        if limit is not None:
            capped = self.subtree[i] - local - (used - local if used > local else 0) + limit
            above = min(above, capped)
        return above + (local - used if local > used else 0)

    def available(self, i: int) -> int:
        free = self.raw_available(i)
        return free if free > 0 else 0

    def add(self, i: int, amount: int) -> None:
        node = self
        while True:
            inside = node.local[i] - node.usage[i]
            node.usage[i] += amount
            parent = node.parent
            inside = max(inside, 0)
            if parent is None or amount <= inside:
                return
            amount -= inside
            node = parent

    def remove(self, i: int, amount: int) -> None:
        node = self
        while True:
            stored = node.usage[i] - node.local[i]
            node.usage[i] -= amount
            parent = node.parent
            if parent is None or stored <= 0:
                return
            amount = min(amount, stored)
            node = parent

    def add_all(self, usage: Usage) -> None:
        for i, amount in usage.items():
            self.add(i, amount)

    def remove_all(self, usage: Usage) -> None:
        for i, amount in usage.items():
            self.remove(i, amount)

    def fits(self, usage: Usage) -> bool:
        """Whether every amount is available.  What asks for nothing always fits, also in a queue that owes."""
        return all(amount <= 0 or amount <= self.raw_available(i) for i, amount in usage.items())

    def borrowing_with(self, i: int, amount: int) -> bool:
        """True if `amount` more would exceed this node's own quota (a cohort's is that of its subtree)."""
        return self.subtree[i] < self.usage[i] + amount

    def within_nominal(self, pairs: Iterable[int]) -> bool:
        return all(self.usage[i] <= self.subtree[i] for i in pairs)

    def ancestors(self) -> list[Node]:
        found = []
        node = self.parent
        while node is not None:
            found.append(node)
            node = node.parent
        return found

    def root(self) -> Node:
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def path(self) -> str:
        """`/root/…/queue`, as Kueue writes it in its messages."""
        return "/" + "/".join([*(a.name for a in reversed(self.ancestors())), self.name])

    def queues(self) -> list[Node]:
        """Every cluster queue of this subtree, in the order of their names at each level."""
        if self.is_queue:
            return [self]
        found = list(self.queue_children)
        for child in self.cohort_children:
            found.extend(child.queues())
        return found

    def lowest_fit(self, i: int, amount: int) -> tuple[int, bool]:
        """Height of the lowest subtree whose quota holds `amount` more, and whether that is below the root.

        The height is Kueue's borrowing level: 0 means that nothing is borrowed.
        """
        parent = self.parent
        if parent is None or not self.borrowing_with(i, amount):
            return 0, parent is not None
        rest = amount - self.local_available(i)
        node: Node | None = parent
        top = parent
        while node is not None:
            if not node.borrowing_with(i, rest):
                return node.height, node.parent is not None
            rest -= node.local_available(i)
            top, node = node, node.parent
        return top.height, False


@dataclass(slots=True)
class Tree:
    """All nodes of one policy.  `cyclic` names the cohorts on or under a cycle: nothing is admitted there."""

    pairs: list[Pair] = field(default_factory=list)
    index: dict[Pair, int] = field(default_factory=dict)
    queues: dict[str, Node] = field(default_factory=dict)
    cohorts: dict[str, Node] = field(default_factory=dict)
    cyclic: frozenset[str] = frozenset()
    roots: list[Node] = field(default_factory=list)

    @classmethod
    def of(cls, policy: Policy, *, extra: Iterable[Pair] = ()) -> Tree:
        """The tree of a policy, empty of usage.  `extra` pairs get a place too: old usage on flavors now gone."""
        tree = cls()
        for queue in policy.cluster_queues.values():
            tree._declare(queue.resource_groups)
        for cohort in policy.cohorts.values():
            tree._declare(cohort.resource_groups)
        for pair in sorted(extra):
            tree._pair(*pair)
        size = len(tree.pairs)
        for name in sorted(policy.cluster_queues):
            queue = policy.cluster_queues[name]
            tree.queues[name] = node = Node(name, is_queue=True, size=size, weight=queue.fair_weight)
            tree._quotas(node, queue.resource_groups)
        parents = tree._grow_cohorts(policy, size)
        tree._link(policy, parents)
        for node in [*tree.cohorts.values(), *tree.queues.values()]:
            if node.parent is None:
                tree.roots.append(node)
                _settle(node)
        for root in tree.roots:
            _settle_downward(root, tree.pairs)
        return tree

    def _pair(self, flavor: str, resource: str) -> int:
        pair = (flavor, resource)
        if pair not in self.index:
            self.index[pair] = len(self.pairs)
            self.pairs.append(pair)
        return self.index[pair]

    def _declare(self, groups: tuple[ResourceGroup, ...]) -> None:
        for group in groups:
            for flavor in group.flavors:
                for resource in flavor.resources:
                    self._pair(flavor.flavor, resource)

    def _quotas(self, node: Node, groups: tuple[ResourceGroup, ...]) -> None:
        for group in groups:
            for flavor in group.flavors:
                for resource, quota in flavor.resources.items():
                    i = self.index[flavor.flavor, resource]
                    node.nominal[i] = quota.nominal
                    node.borrow[i] = quota.borrowing_limit
                    node.lend[i] = quota.lending_limit

    def _grow_cohorts(self, policy: Policy, size: int) -> dict[str, str | None]:
        """Every cohort that is declared or only named; the implicit ones have no quota and weight 1."""
        parents: dict[str, str | None] = {c.name: c.parent for c in policy.cohorts.values()}
        for named in [*parents.values(), *(q.cohort for q in policy.cluster_queues.values())]:
            if named:
                parents.setdefault(named, None)
        for name in sorted(parents):
            spec = policy.cohorts.get(name)
            self.cohorts[name] = node = Node(name, is_queue=False, size=size, weight=spec.fair_weight if spec else 1.0)
            if spec:
                self._quotas(node, spec.resource_groups)
        return parents

    def _link(self, policy: Policy, parents: Mapping[str, str | None]) -> None:
        self.cyclic = frozenset(name for name in parents if _loops(name, parents))
        for name in sorted(parents):
            above = parents[name]
            if above and name not in self.cyclic:
                self.cohorts[name].parent = self.cohorts[above]
                self.cohorts[above].cohort_children.append(self.cohorts[name])
        for name, node in self.queues.items():
            cohort = policy.cluster_queues[name].cohort
            if cohort and cohort not in self.cyclic:
                node.parent = self.cohorts[cohort]
                node.parent.queue_children.append(node)


def _loops(name: str, parents: Mapping[str, str | None]) -> bool:
    seen: set[str] = set()
    at: str | None = name
    while at:
        if at in seen:
            return True
        seen.add(at)
        at = parents.get(at)
    return False


def _settle(node: Node) -> None:
    """From the leaves up: what a subtree owns, what it keeps, and how high it is."""
    children = [*node.cohort_children, *node.queue_children]
    node.height = 0 if node.is_queue else min(len(children), 1)
    node.subtree = list(node.nominal)
    for child in children:
        _settle(child)
        if not child.is_queue:
            node.height = max(node.height, child.height + 1)
        for i, own in enumerate(child.subtree):
            node.subtree[i] += own - child.local[i]
    for i, limit in enumerate(node.lend):
        node.local[i] = 0 if limit is None else max(0, node.subtree[i] - limit)


def _settle_downward(node: Node, pairs: list[Pair]) -> None:
    """From the root down: the most that could ever be had at each node."""
    parent = node.parent
    for i, own in enumerate(node.subtree):
        if parent is None:
            node.potential[i] = own
            continue
        most = node.local[i] + parent.potential[i]
        limit = node.borrow[i]
        node.potential[i] = most if limit is None else min(most, own + limit)
    for i, (_, resource) in enumerate(pairs):
        node.lendable[resource] = node.lendable.get(resource, 0) + node.potential[i]
    for child in [*node.cohort_children, *node.queue_children]:
        _settle_downward(child, pairs)
