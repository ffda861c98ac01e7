"""A sanity check of an engine's whole state: everything adds up, everybody is in exactly one place.

Reads the engine's own state; raises AssertionError with what does not add up.
"""

from __future__ import annotations

from tenure.engine import Engine
from tenure.engine.quota import Tree
from tenure.engine.world import World

__all__ = ["audit", "fingerprint"]


def audit(engine: Engine) -> None:
    """All invariants that hold between any two calls."""
    world = engine._world
    _usage(world)
    _places(world)
    _cards(world)
    _gangs(world)
    for item in world.items.values():
        if not item.holds:
            assert engine.status(item.key) is not None, f"{item.key} waits and nobody can say why"


def fingerprint(engine: Engine) -> object:
    """All that a question must not change."""
    world = engine._world
    return (
        [(name, tuple(node.usage)) for name, node in (*world.tree.queues.items(), *world.tree.cohorts.items())],
        {
            name: (q.generation, sorted(q.holders), q.pending.active, q.pending.parked)
            for name, q in world.queues.items()
        },
        {i.key: (i.scan, i.evicting, dict(i.shrinking), i.admission, i.status) for i in world.items.values()},
        dict(world.cards.held),
        {c: world.cards.room(c) for c in world.cards.cards},
    )


def _usage(world: World) -> None:
    """At every node of the tree, usage is the sum over those who hold quota under it."""
    tree = Tree.of(world.policy, extra=world.pairs)
    translate = [tree.index[pair] for pair in world.pairs]
    for queue in world.queues.values():
        for item in queue.holders.values():
            assert item.admission is not None, f"{item.key} is a holder without a reservation"
            assert item.admission.cluster_queue == queue.spec.name
            for i, amount in item.usage.items():
                tree.queues[queue.spec.name].add(translate[i], amount)
            told: dict[tuple[str, str], int] = {}
            for ps in item.admission.assignments:
                for r, flavor in ps.flavors.items():
                    told[flavor, r] = told.get((flavor, r), 0) + ps.usage.get(r, 0)
            paid = {world.pairs[i]: n for i, n in item.usage.items()}
            assert paid == {k: n for k, n in told.items() if n}, f"{item.key} pays {paid} for {told}"
    for nodes, fresh in ((world.tree.queues, tree.queues), (world.tree.cohorts, tree.cohorts)):
        for name, node in nodes.items():
            want = [fresh[name].usage[t] for t in translate]
            assert node.usage == want, f"usage of {name} is {node.usage}; its holders sum up to {want}"


def _places(world: World) -> None:
    seen: set[str] = set()
    for name, queue in world.queues.items():
        pending = queue.pending
        items = list(pending.items())
        active = sum(1 for i in items if i.pile is not None and i.pile.active)
        parked = sum(1 for i in items if i.pile is not None and not i.pile.active)
        assert (active, parked) == (pending.active, pending.parked), f"{name} has lost count of its pending"
        assert len(pending) == len(items) == len({i.key for i in items}), f"somebody is twice in {name}"
        for item in items:
            assert not item.holds, f"{item.key} waits in {name} and holds quota"
            assert item.queue is queue
            seen.add(item.key)
        assert pending.sticky is None or pending.sticky in items
    for key, item in world.strays.items():
        assert not item.holds
        assert item.key == key
        assert key not in seen
        seen.add(key)
    waiting = {i.key for i in world.items.values() if not i.holds}
    assert waiting == seen, f"lost or invented: {waiting ^ seen}"


def _cards(world: World) -> None:
    held = {i.key: i.admission.placements for i in world.items.values() if i.admission and i.admission.placements}
    assert world.cards.held == held, "the cards' books and the reservations differ"
    for id, card in world.cards.cards.items():
        mine = [p for placements in held.values() for p in placements if p.card == id]
        shares, memory = sum(p.shares for p in mine), sum(p.memory for p in mine)
        assert world.cards.room(id) == (card.shares - shares, card.memory - memory)
        assert shares <= card.shares, f"{id} is over-committed: {shares} of {card.shares} shares"
        assert memory <= card.memory, f"{id} is over-committed: {memory} of {card.memory} bytes"


def _gangs(world: World) -> None:
    """All or none, or not below the minimum; and every process that asks for a card has exactly one."""
    for item in world.items.values():
        if item.admission is None:
            continue
        pod_sets = {p.name: p for p in item.workload.pod_sets}
        for a in item.admission.assignments:
            ps = pod_sets[a.name]
            least = ps.count if ps.min_count is None else ps.min_count
            assert least <= a.count <= ps.count, f"{item.key} has {a.count} processes of {least} to {ps.count}"
            ranks = [r for p in item.admission.placements if p.pod_set == a.name for r in p.ranks]
            assert not ranks or sorted(ranks) == list(range(a.count)), f"{item.key} is placed as {ranks} of {a.count}"
