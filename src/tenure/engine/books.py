"""Who uses what: the usage of every cluster queue and every card, read off the live state."""

from __future__ import annotations

from tenure.domain.explanation import CardHold, CardUsage, QueueUsage

from .queues import Queue
from .quota import Node
from .world import World

__all__ = ["card_usage", "queue_usage"]


def queue_usage(world: World) -> tuple[QueueUsage, ...]:
    """Per cluster queue, flavor and resource, in the order in which the policy names them."""
    lent: dict[tuple[int, int], int] = {}
    for root in world.tree.roots:
        for i in range(len(world.pairs)):
            _lend(root, i, lent)
    return tuple(row for name in world.policy.cluster_queues for row in _rows(world, world.queues[name], lent))


def _rows(world: World, queue: Queue, lent: dict[tuple[int, int], int]) -> list[QueueUsage]:
    node = queue.node
    pending = len(queue.pending) + sum(1 for _ in world.aside_of(queue.spec.name))
    rows = []
    for group in queue.spec.resource_groups:
        for flavor in group.flavors:
            for resource in flavor.resources:
                i = world.tree.index[flavor.flavor, resource]
                rows.append(
                    QueueUsage(
                        cluster_queue=queue.spec.name,
                        flavor=flavor.flavor,
                        resource=resource,
                        nominal=node.nominal[i],
                        used=node.usage[i],
                        borrowed=max(0, node.usage[i] - node.nominal[i]),
                        lent=lent.get((id(node), i), 0),
                        borrowing_limit=node.borrow[i],
                        lending_limit=node.lend[i],
                        available=node.available(i),
                        pending=pending,
                    )
                )
    return rows


def _lend(root: Node, i: int, lent: dict[tuple[int, int], int]) -> None:
    """Spread what is borrowed in one tree over those who could lend it: cohorts' own quota first, then idle queues."""
    queues = root.queues()
    if len(queues) < 2:
        return
    borrowed = sum(max(0, n.usage[i] - n.nominal[i]) for n in queues)
    borrowed -= _cohort_quota(root, i)
    idle = [(n, _idle(n, i)) for n in queues]
    total = sum(amount for _, amount in idle)
    if borrowed <= 0 or total <= 0:
        return
    borrowed = min(borrowed, total)
    given = 0
    for n, amount in idle:
        lent[id(n), i] = borrowed * amount // total
        given += lent[id(n), i]
    for n, amount in idle:
        if given == borrowed:
            break
        if lent[id(n), i] < amount:
            lent[id(n), i] += 1
            given += 1


def _idle(node: Node, i: int) -> int:
    free = max(0, node.nominal[i] - node.usage[i])
    limit = node.lend[i]
    return free if limit is None else min(free, limit)


def _cohort_quota(node: Node, i: int) -> int:
    if node.is_queue:
        return 0
    return node.nominal[i] + sum(_cohort_quota(child, i) for child in node.cohort_children)


def card_usage(world: World) -> tuple[CardUsage, ...]:
    """Per card, in the order of their indices: what is free, and who holds the rest."""
    cards = world.cards
    holders: dict[str, list[CardHold]] = {}
    for key, placements in cards.held.items():
        parts: dict[str, list[int]] = {}
        for p in placements:
            part = parts.setdefault(p.card, [0, 0, 0])
            part[0] += p.shares
            part[1] += p.memory
            part[2] += len(p.ranks)
        for held_on, (shares, memory, processes) in parts.items():
            hold = CardHold(key=key, shares=shares, memory=memory, processes=processes)
            holders.setdefault(held_on, []).append(hold)
    rows = []
    for card in cards.cards.values():
        shares_free, memory_free = cards.room(card.id)
        rows.append(
            CardUsage(
                card=card.id,
                flavor=card.flavor,
                shares=card.shares,
                shares_free=shares_free,
                memory=card.memory,
                memory_free=memory_free,
                cordoned=card.cordoned,
                holders=tuple(holders.get(card.id, ())),
            )
        )
    return tuple(rows)
