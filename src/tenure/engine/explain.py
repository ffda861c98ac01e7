"""Why a pending workload waits: every obstacle with its numbers, who holds what is missing, and by which rule.

Looks and changes nothing: what it tries on the tree it takes back.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenure.domain.amounts import GPU, GPU_MEMORY
from tenure.domain.explanation import Blocker, Holder
from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.policy import PreemptionPolicy, QuotaCheckStrategy

from .cards import NoPlace
from .flavors import Assignment, Mode
from .forms import GroupDemand, PodDemand, effective_requests, whole_card_amount
from .items import Item
from .matching import matches_selector
from .nomination import eligible_places, place_requests
from .queues import Queue
from .rights import Rights
from .spelling import spell, spell_instant
from .victims import Target, may_take
from .world import World

__all__ = ["blockers"]


def blockers(world: World, item: Item, a: Assignment | None, targets: list[Target], now: Instant) -> list[Blocker]:
    """All of them, the outermost first.  `a` is the present verdict; None where no queue takes the workload."""
    found: list[Blocker] = []
    queue = item.queue
    if queue is None or a is None:
        pend = item.status
        return [Blocker(kind="queue", message=pend.message if pend else "no queue takes it")]
    if queue.barrier is not None:
        found.append(Blocker(kind="queue", message="; ".join((queue.barrier[1], *world.faults(queue.spec)))))
    if not matches_selector(queue.spec.namespace_selector, world.labels(item.workload.namespace)):
        text = f"ClusterQueue {queue.spec.name} takes no work of namespace {item.workload.namespace}: its namespaceSelector"
        text += " is absent" if queue.spec.namespace_selector is None else " does not match the namespace's labels"
        found.append(Blocker(kind="queue", message=text))
    if item.not_before is not None and item.not_before > now:
        found.append(Blocker(kind="backoff", message=f"not before {spell_instant(item.not_before)}"))
    if a.mode is not Mode.FIT:
        short = list(_quota(world, item, queue))
        found += short
        found += _no_room(world, item, queue, {h.key for b in short for h in b.held_by})
    elif world.cards.known:
        outcome = world.cards.place(place_requests(world, item, a))
        found += [_placement(world, outcome, set())] if isinstance(outcome, NoPlace) else []
    if a.mode is not Mode.FIT and targets:
        found += _leaving(targets)
    if world.rights.options.ageing is not None:
        found += _older(queue, item)
    if not found:
        found += _line(queue, item)
    if not found and a.mode is not Mode.FIT:
        found.append(_turn(world, item, queue, targets))
    return found


def _quota(world: World, item: Item, queue: Queue) -> Iterator[Blocker]:
    demand = world.demand(item, queue)
    for ps in demand.pod_sets:
        if ps.missing is None or world.policy.quota_check is not QuotaCheckStrategy.BLOCK_UNDECLARED:
            continue
        covered = {r for g in queue.spec.resource_groups for r in g.covered_resources}
        for resource, each in sorted(effective_requests(ps.pod_set, world.policy).items()):
            if each and resource not in covered:
                text = f"ClusterQueue {queue.spec.name} has no quota for {resource}"
                asked = each * ps.pod_set.count
                yield Blocker(kind="resource", resource=resource, asked=asked, free=0, message=text)
    for group in queue.spec.resource_groups:
        parts = [(ps, g) for ps in demand.pod_sets for g in ps.groups if g.group is group]
        if not parts:
            continue
        by_flavor = [_flavor(world, item, queue, parts, k) for k in range(len(group.flavors))]
        if all(by_flavor):  # otherwise one of the flavors would do
            for found in by_flavor:
                yield from found


def _flavor(
    world: World, item: Item, queue: Queue, parts: list[tuple[PodDemand, GroupDemand]], k: int
) -> list[Blocker]:
    """What is against one flavor of a group; empty where it would do.  A gang asks for its minimum."""
    flavor = parts[0][1].group.flavors[k].flavor
    barred = [g.barred[k] for _, g in parts if g.barred[k] is not None]
    if barred:
        return [Blocker(kind="flavor", flavor=flavor, message=str(barred[0]))]
    totals: dict[str, int] = {}
    for ps, g in parts:
        count = ps.pod_set.count if ps.pod_set.min_count is None else ps.pod_set.min_count
        for resource, each in g.amounts:
            shares = world.cards.whole_shares(flavor) if item.form.whole_card else None
            totals[resource] = totals.get(resource, 0) + whole_card_amount(resource, each, shares) * count
    found = []
    for resource, asked in totals.items():
        i = world.tree.index[flavor, resource]
        if asked > queue.node.potential[i]:
            found.append(_limit(queue, i, flavor, resource, asked))
        elif asked > queue.node.available(i):
            found.append(_in_use(world, item, queue, i, flavor, resource, asked))
    return found


def _limit(queue: Queue, i: int, flavor: str, resource: str, asked: int) -> Blocker:
    most = queue.node.potential[i]
    text = (
        f"asks for {spell(resource, asked)} of {resource} in flavor {flavor}; "
        f"ClusterQueue {queue.spec.name} can never have more than {spell(resource, most)}"
    )
    return Blocker(kind="limit", resource=resource, flavor=flavor, asked=asked, free=most, message=text)


def _in_use(world: World, item: Item, queue: Queue, i: int, flavor: str, resource: str, asked: int) -> Blocker:
    free = queue.node.available(i)
    holders = [
        Holder(key=c.key, amount=c.usage[i], preemptible=possible, because=because)
        for node in queue.node.root().queues()
        for c in world.queue_of[node].holders.values()
        if c.usage.get(i)
        for possible, because in (_rule(world.rights, item, queue, c, world.queue_of[node], i),)
    ]
    holders.sort(key=lambda h: (-h.amount, h.key))
    text = (
        f"asks for {spell(resource, asked)} of {resource} in flavor {flavor}; {spell(resource, free)} is free "
        f"to ClusterQueue {queue.spec.name}"
    )
    return Blocker(
        kind="quota",
        resource=resource,
        flavor=flavor,
        asked=asked,
        free=free,
        message=text,
        held_by=tuple(holders),
    )


def _rule(rights: Rights, item: Item, queue: Queue, c: Item, other: Queue, i: int) -> tuple[bool, str]:
    """May `item` make `c` go for the sake of pair `i`, and by which rule of the policy (not)?"""
    if c.evicting:
        return True, "it is being stopped already; its quota is free when it has left"
    possible, because = _by_place(item, queue, c, other, i)
    spared = rights.spares(item, c) if possible else None
    return (possible, because) if spared is None else (False, spared.because)


def _by_place(item: Item, queue: Queue, c: Item, other: Queue, i: int) -> tuple[bool, str]:
    rules = queue.spec.preemption
    if other is queue:
        return _by_policy(item, c, rules.within_cluster_queue, f"withinClusterQueue of {queue.spec.name}")
    if rules.reclaim_within_cohort is PreemptionPolicy.NEVER:
        return False, f"reclaimWithinCohort of {queue.spec.name} is Never"
    if other.node.within_nominal((i,)):
        return False, f"{other.spec.name} uses no more than its own quota, and only borrowed quota is reclaimed"
    possible, because = _by_policy(item, c, rules.reclaim_within_cohort, f"reclaimWithinCohort of {queue.spec.name}")
    if possible and queue.node.usage[i] >= queue.node.nominal[i] and not queue.while_borrowing:
        return False, f"{queue.spec.name} would itself borrow, and its borrowWithinCohort is Never"
    return possible, because


def _by_policy(item: Item, c: Item, policy: PreemptionPolicy, rule: str) -> tuple[bool, str]:
    possible = may_take(item, c, policy)
    if policy is PreemptionPolicy.NEVER:
        return False, f"{rule} is Never"
    if policy is PreemptionPolicy.ANY:
        return True, f"{rule} is Any"
    below = "is below" if c.priority < item.priority else "is not below"
    newer = ""
    if policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY and c.priority == item.priority:
        newer = ", and it is newer" if possible else ", and it is older"
    return possible, f"{rule} is {policy}: its priority {c.priority} {below} {item.priority}{newer}"


def _no_room(world: World, item: Item, queue: Queue, gone: set[WorkloadKey]) -> Iterator[Blocker]:
    """Quota is short.  What no card could take even if all who hold that quota had left: one blocker a flavor, or none."""
    if not world.cards.known:
        return
    leaving = [world.cards.held[key] for key in sorted(gone) if key in world.cards.held]
    outcomes = [world.cards.place(requests, without=leaving) for requests in eligible_places(world, item, queue)]
    if all(isinstance(outcome, NoPlace) for outcome in outcomes):
        yield from (_placement(world, outcome, gone) for outcome in outcomes if isinstance(outcome, NoPlace))


def _placement(world: World, outcome: NoPlace, gone: set[WorkloadKey]) -> Blocker:
    """No place, `gone` taken as having left."""
    r = outcome.request
    cards = {
        c.id: c for c in world.cards.cards.values() if c.flavor == r.flavor and not c.cordoned and c.id not in r.avoid
    }
    rooms = {id: world.cards.room(id) for id in cards}
    holders: dict[WorkloadKey, tuple[int, int]] = {}
    for key, placements in world.cards.held.items():
        for p in placements:
            if p.card not in cards:
                continue
            if key in gone:
                rooms[p.card] = _plus(rooms[p.card], p.shares, p.memory)
            else:
                holders[key] = _plus(holders.get(key, (0, 0)), p.shares, p.memory)
    which = 1 if any(shares >= r.shares for shares, _ in rooms.values()) else 0
    text = outcome.message + (", also when those have left who hold its quota" if gone else "")
    return Blocker(
        kind="placement",
        resource=(GPU, GPU_MEMORY)[which],
        flavor=r.flavor,
        asked=(r.shares, r.memory)[which],
        free=max(0, 0, *(room[which] for room in rooms.values())),
        message=text,
        held_by=tuple(
            Holder(
                key=key, amount=n[which], preemptible=False, because="quota is there; nobody is preempted for a place"
            )
            for key, n in sorted(holders.items())
            if n[which]
        ),
    )


def _plus(room: tuple[int, int], shares: int, memory: int) -> tuple[int, int]:
    return room[0] + shares, room[1] + memory


def _leaving(targets: list[Target]) -> Iterator[Blocker]:
    leaving = [t for t in targets if t.item.evicting or t.item.shrinking]
    if leaving:
        keys = ", ".join(t.item.key for t in leaving)
        yield Blocker(
            kind="preemption",
            message=f"waits until {keys} has left",
            held_by=tuple(
                Holder(key=t.item.key, amount=0, preemptible=True, because=f"asked to leave: {t.reason}")
                for t in leaving
            ),
        )


def _turn(world: World, item: Item, queue: Queue, targets: list[Target]) -> Blocker:
    """Nothing is short: some flavor would do, and the queue's flavorFungibility looks at another one first."""
    if targets:
        keys = ", ".join(sorted(t.item.key for t in targets))
        return Blocker(kind="turn", message=f"its next turn has yet to come; it would then preempt {keys}")
    shut = {b.flavor for b in _flavors(world, item, queue)}
    every = dict.fromkeys(f.flavor for g in queue.spec.resource_groups for f in g.flavors)
    rest = ", ".join(f for f in every if f not in shut)
    text = f"its next turn has yet to come: flavorFungibility let the search end before it came to {rest or 'the rest'}"
    return Blocker(kind="turn", message=text)


def _flavors(world: World, item: Item, queue: Queue) -> Iterator[Blocker]:
    """What is against each flavor, also where another would do."""
    pod_sets = world.demand(item, queue).pod_sets
    for group in queue.spec.resource_groups:
        parts = [(ps, g) for ps in pod_sets for g in ps.groups if g.group is group]
        for k in range(len(group.flavors) if parts else 0):
            yield from _flavor(world, item, queue, parts, k)


def _older(queue: Queue, item: Item) -> Iterator[Blocker]:
    """Those of lower priority whose age has moved them past this one."""
    passed = [o for o in queue.pending.items() if o.rank < item.rank and o.priority < item.priority]
    if passed:
        first = min(passed, key=lambda o: o.rank)
        more = f", and so do {len(passed) - 1} more" if len(passed) > 1 else ""
        aged = f"its age counts as {first.boost}, on top of its priority {first.priority}"
        yield Blocker(kind="line", message=f"{first.key} goes before it: {aged}{more}")


def _line(queue: Queue, item: Item) -> Iterator[Blocker]:
    ahead = queue.pending.position(item)
    if ahead:
        first = queue.pending.sticky or queue.pending.first(1)[0]
        yield Blocker(
            kind="line",
            message=f"{ahead} ahead of it in ClusterQueue {queue.spec.name} ({queue.spec.queueing_strategy}); "
            f"first is {first.key}",
        )
