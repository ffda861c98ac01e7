"""What a head could get: an assignment of flavors, and whoever would have to go for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tenure.domain.amounts import GPU, GPU_MEMORY

from .cards import NoPlace, PlaceRequest
from .flavors import Assignment, Mode, assign
from .items import Item, Scan
from .preemption import Oracle
from .queues import Queue
from .victims import Target
from .world import World

__all__ = ["eligible_places", "nominate", "place_requests"]

Nomination = tuple[Assignment, list[Target]]


def nominate(
    world: World,
    queue: Queue,
    item: Item,
    oracle: Oracle,
    *,
    nominated: Sequence[Mapping[str, str]] | None = None,
) -> Nomination:
    """The full count at once or by preemption; else, where the workload allows it, as many processes as will do."""
    if item.scan is not None and _outdated(item.scan, world, queue, item):
        item.scan = None
    full = assign(world, queue, item, oracle, nominated=nominated)
    targets = _room(world, queue, item, oracle, full)
    if targets is not None:
        return full, targets
    if item.form.reducible:
        reduced = _search(world, queue, item, oracle, nominated)
        if reduced is not None:
            return reduced
    return full, []


def _outdated(scan: Scan, world: World, queue: Queue, item: Item) -> bool:
    if scan.form is not item.form:
        return True
    if world.cycle_no - scan.cycle <= 1:
        return False
    return queue.generation > scan.generation


def _room(world: World, queue: Queue, item: Item, oracle: Oracle, a: Assignment) -> list[Target] | None:
    """Nobody for a fit, the victims for a preemption that works; None where neither is to be had."""
    if a.mode is Mode.FIT:
        return []
    if not a.mode.by_preemption:
        return None
    place = None
    if world.cards.known:
        requests = place_requests(world, item, a)

        def place(gone: Sequence[Target]) -> bool:
            return not isinstance(world.cards.place(requests, without=[t.places for t in gone]), NoPlace)

    return oracle.targets(item, queue, a.need(world.tree.index), a.request, place=place) or None


def _search(
    world: World,
    queue: Queue,
    item: Item,
    oracle: Oracle,
    nominated: Sequence[Mapping[str, str]] | None,
) -> Nomination | None:
    """Partial admission: the smallest step down that works, by bisection, as Kueue searches it."""
    pod_sets = item.form.pod_sets
    full = [p.count for p in pod_sets]
    spare = [0 if p.min_count is None else p.count - p.min_count for p in pod_sets]
    total = sum(spare)
    best: Nomination | None = None
    best_step = -1
    low, high = 0, total + 1
    while low < high:
        step = (low + high) // 2
        counts = [n - d * step // total for n, d in zip(full, spare, strict=True)]
        a = assign(world, queue, item, oracle, counts=counts, nominated=nominated)
        targets = _room(world, queue, item, oracle, a)
        if targets is not None:
            best, best_step = (a, targets), step
            high = step
        else:
            low = step + 1
    return best if best is not None and best_step == low else None


def place_requests(world: World, item: Item, a: Assignment) -> list[PlaceRequest]:
    """What the assignment asks of the cards; pod sets without a share and without card memory ask for nothing."""
    requests = []
    for ps in a.pod_sets:
        shares, memory = ps.demand.card
        choice = ps.choices.get(GPU) or ps.choices.get(GPU_MEMORY)
        if choice is None or ps.count == 0 or not (shares or memory):
            continue
        whole = item.form.whole_card and shares > 0
        avoid = item.form.avoid
        requests.append(PlaceRequest(ps.demand.pod_set.name, ps.count, choice.flavor, shares, memory, whole, avoid))
    return requests


def eligible_places(world: World, item: Item, queue: Queue) -> Iterator[list[PlaceRequest]]:
    """For each flavor that could pay for the card, what the workload at its smallest would ask of the cards."""
    asking = [ps for ps in world.demand(item, queue).pod_sets if any(ps.card)]
    groups = {r: g for g in queue.spec.resource_groups for r in g.covered_resources}
    group = groups.get(GPU) or groups.get(GPU_MEMORY)
    if not asking or group is None:
        return
    for k, quotas in enumerate(group.flavors):
        requests = []
        for ps in asking:
            if any(g.group is group and g.barred[k] is not None for g in ps.groups):
                break
            count = ps.pod_set.count if ps.pod_set.min_count is None else ps.pod_set.min_count
            (shares, memory), whole = ps.card, item.form.whole_card and ps.card[0] > 0
            name, avoid = ps.pod_set.name, item.form.avoid
            requests.append(PlaceRequest(name, count, quotas.flavor, shares, memory, whole, avoid))
        else:
            yield requests
