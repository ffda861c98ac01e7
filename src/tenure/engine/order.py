"""In which order a cycle processes its entries.

Classical: less borrowing, higher priority, older.  Fair sharing: a tournament up the cohort tree after every entry,
in which each contestant is judged by the share its side would have with it.  The last ties go by uid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .entries import Entry
from .quota import Node
from .shares import Share, compare, share_of
from .world import World

__all__ = ["in_order"]


def in_order(world: World, entries: Sequence[Entry]) -> Iterator[Entry]:
    """Every entry once.  Under fair sharing the choice depends on the tree as it stands when the next one is asked."""
    if not world.fair:
        yield from sorted(entries, key=lambda e: (e.assignment.level, *e.item.rank))
        return
    left = {e.queue.node: e for e in entries}
    while left:
        root = min((n.root() for n in left), key=lambda n: n.name)
        winner = left[root] if root in left else _tournament(root, left, _shares(world, root, left))
        assert winner is not None
        del left[winner.queue.node]
        yield winner


_Shares = dict[tuple[int, int], Share]


def _shares(world: World, root: Node, left: dict[Node, Entry]) -> _Shares:
    """For each entry and each cohort above it: the share of the child through which it comes, with its usage added."""
    found: _Shares = {}
    for node, entry in left.items():
        if node.root() is not root:
            continue
        node.add_all(entry.assignment.usage)
        below = node
        for cohort in node.ancestors():
            found[id(cohort), id(entry)] = share_of(below, world.pairs)
            below = cohort
        node.remove_all(entry.assignment.usage)
    return found


def _tournament(cohort: Node, left: dict[Node, Entry], shares: _Shares) -> Entry | None:
    contestants = [_tournament(child, left, shares) for child in cohort.cohort_children]
    contestants += [left.get(child) for child in cohort.queue_children]
    best: Entry | None = None
    for entry in contestants:
        if entry is not None and (best is None or _beats(entry, best, cohort, shares)):
            best = entry
    return best


def _beats(a: Entry, b: Entry, cohort: Node, shares: _Shares) -> bool:
    share_a, share_b = shares[id(cohort), id(a)], shares[id(cohort), id(b)]
    borrows_a = share_a.borrowing_on(a.assignment.usage)
    borrows_b = share_b.borrowing_on(b.assignment.usage)
    if borrows_a is not borrows_b:
        return borrows_b
    sign = compare(share_a, share_b)
    return sign < 0 if sign else a.item.rank < b.item.rank
