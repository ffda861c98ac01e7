"""Counterfactuals: 'with this changed, it would start', each one played on a copy of the engine before it is shown.

The copy holds everybody who holds quota, and of those who wait only whoever could come first; it starts from a world
in which everything parked is looked at again, as it would be after any change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tenure.domain.amounts import GPU, GPU_MEMORY, format_bytes
from tenure.domain.explanation import Blocker, Counterfactual
from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.plan import Plan
from tenure.domain.reasons import PendingReason
from tenure.domain.workload import Workload

from .items import Item, Rank
from .spelling import spell
from .world import World

__all__ = ["Trial", "counterfactuals", "first_in_line", "play", "rivals_of", "starts"]

_MAX_CYCLES = 200
_MAX_AHEAD = 32  # in its own queue; behind a longer line nothing is promised
_MAX_BESIDE = 16  # of every other queue of the cohort tree
_MAX_ENDINGS = 4
_MAX_CLASSES = 6
_MAX_LOOKS = 4  # nobody leaves during a trial: who was looked at so often, over all its flavors, will not start

Trial = Callable[[Iterable[WorkloadKey], Iterable[Workload]], Iterator[Plan]]
"""Plays cycles on a copy without these holders, and with these workloads waiting; the plans one by one, to rest."""


def first_in_line(world: World, item: Item) -> list[Workload]:
    """Who waits in this cohort tree and could be served before `item`, and `item` itself."""
    assert item.queue is not None
    line: dict[WorkloadKey, Workload] = {}
    for node in item.queue.node.root().queues():
        own = node is item.queue.node
        for other in world.queue_of[node].pending.first(_MAX_AHEAD if own else _MAX_BESIDE):
            if other.not_before is None and (not own or other.rank < item.rank):
                line[other.key] = other.workload
    line[item.key] = item.workload
    return list(line.values())


def rivals_of(world: World, queue: str, key: WorkloadKey, rank: Rank) -> list[Workload]:
    """Who waits in the cohort tree of a queue and could be served before one of that key and rank: the first of each
    form, so that a long line costs as little as a short one."""
    own = world.queues[queue]
    found: list[Item] = []
    for node in own.node.root().queues():
        pending = world.queue_of[node].pending
        heads = [item for item in pending.heads() if item.not_before is None and item.key != key]
        before = [item for item in heads if node is not own.node or item.rank < rank or item is pending.sticky]
        found += before[: _MAX_AHEAD if node is own.node else _MAX_BESIDE]
    return [item.workload for item in found]


def starts(key: WorkloadKey, plans: Iterator[Plan]) -> bool:
    """It is admitted, or others have begun to leave for it alone."""
    for plan in _until_settled(key, plans):
        if any(admit.key == key for admit in plan.admits):
            return True
        if key in {*(p.preemptor for p in plan.preempts), *(p.preemptor for p in plan.shrinks)}:
            return True
        waits = PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS
        if any(pend.key == key and pend.reason is waits for pend in plan.pends):
            return True
    return False


def counterfactuals(world: World, item: Item, blockers: Iterable[Blocker], trial: Trial) -> Iterator[Counterfactual]:
    """In this order: somebody's end, a smaller request, a higher priority.  Only what came true in the trial."""
    assert item.queue is not None
    if item.not_before is not None or item.queue.pending.position(item) >= _MAX_AHEAD:
        return
    line = first_in_line(world, item)
    if _starts(item.key, trial((), line)):
        return
    yield from _endings(item, blockers, line, trial)
    yield from _smaller(item, blockers, line, trial)
    yield from _higher(world, item, line, trial)


def _starts(key: WorkloadKey, plans: Iterator[Plan]) -> bool:
    return any(admit.key == key for plan in _until_settled(key, plans) for admit in plan.admits)


def _until_settled(key: WorkloadKey, plans: Iterator[Plan]) -> Iterator[Plan]:
    looks = 0
    for plan in plans:
        yield plan
        looks += key in plan.order
        if looks >= _MAX_LOOKS:
            return


def _endings(item: Item, blockers: Iterable[Blocker], line: list[Workload], trial: Trial) -> Iterator[Counterfactual]:
    holders = list(dict.fromkeys(h.key for b in blockers for h in b.held_by if h.key != item.key))
    helpful = [key for key in holders[:_MAX_ENDINGS] if _starts(item.key, trial((key,), line))]
    for key in helpful:
        yield Counterfactual(change=f"when {key} ends", effect="it starts")
    if not helpful and holders and _starts(item.key, trial(holders, line)):
        yield Counterfactual(change=f"when {', '.join(holders)} have ended", effect="it starts")


def _smaller(item: Item, blockers: Iterable[Blocker], line: list[Workload], trial: Trial) -> Iterator[Counterfactual]:
    """The same workload asking for what is free of the one resource that is short."""
    seen: set[tuple[str, int]] = set()
    for b in blockers:
        if b.kind not in ("quota", "limit", "placement") or b.resource is None or not b.free or not b.asked:
            continue
        changed = _asking_less(item.workload, b.resource, b.free, b.asked)
        if changed is None or (b.resource, b.free) in seen:
            continue
        seen.add((b.resource, b.free))
        if _starts(item.key, trial((), [changed if w.key == item.key else w for w in line])):
            asks = {p.name: p.requests.get(b.resource, 0) for p in item.workload.pod_sets}
            each = next(p for p in changed.pod_sets if p.requests.get(b.resource, 0) != asks[p.name])
            less, more = _amount(b.resource, each.requests[b.resource]), _amount(b.resource, asks[each.name])
            yield Counterfactual(change=f"with {less} instead of {more}", effect="it would start now")


def _asking_less(w: Workload, resource: str, free: int, asked: int) -> Workload | None:
    """The largest equal cut of every process that brings the whole under what is free."""
    pods = []
    for p in w.pod_sets:
        each = p.requests.get(resource, 0)
        less = _said_exactly(resource, each * free // asked)
        if each and not less:
            return None
        pods.append(replace(p, requests={**p.requests, resource: less}) if each else p)
    changed = replace(w, pod_sets=tuple(pods))
    return None if changed == w else changed


def _said_exactly(resource: str, amount: int) -> int:
    """The largest amount up to this one that `_amount` spells without rounding: what is shown is what was tried."""
    if resource != GPU_MEMORY:
        return amount
    for unit in (1 << 30, 1 << 20, 1 << 10):
        if amount >= unit:
            return -(-(amount * 10 // unit) * unit // 10)
    return amount


def _amount(resource: str, amount: int) -> str:
    if resource == GPU_MEMORY:
        return f"{format_bytes(amount)} of card memory"
    if resource == GPU:
        return f"{amount} share(s)"
    return f"{spell(resource, amount)} of {resource}"


def _higher(world: World, item: Item, line: list[Workload], trial: Trial) -> Iterator[Counterfactual]:
    """The lowest priority class above its own at which something would change."""
    classes = sorted(
        (c for c in world.policy.workload_priority_classes.values() if c.value > item.priority),
        key=lambda c: (c.value, c.name),
    )
    others = [i.priority for i in world.holders()] + [w.priority for w in line]
    seen = {_standing(item.priority, others)}
    for c in classes[:_MAX_CLASSES]:
        standing = _standing(c.value, others)
        if standing in seen:  # it would rank as before
            continue
        seen.add(standing)
        raised = replace(item.workload, priority=c.value)
        victims: list[WorkloadKey] = []
        started = False
        for plan in _until_settled(item.key, trial((), [raised if w.key == item.key else w for w in line])):
            victims += [p.victim for p in plan.preempts if p.preemptor == item.key]
            victims += [p.victim for p in plan.shrinks if p.preemptor == item.key]
            started = started or any(a.key == item.key for a in plan.admits)
            if victims or started:
                break
        if victims:
            yield Counterfactual(change=f"at priority {c.name}", effect=f"it would preempt {', '.join(victims)}")
            return
        if started:
            yield Counterfactual(change=f"at priority {c.name}", effect="it would start now")
            return


def _standing(priority: int, others: Iterable[int]) -> tuple[int, int]:
    """How many it outranks, and how many are its equals."""
    below = equal = 0
    for other in others:
        below += other < priority
        equal += other == priority
    return below, equal


def play(cycle: Callable[[Instant], Plan], has_heads: Callable[[Instant], bool], now: Instant) -> Iterator[Plan]:
    """Cycles until nothing moves any more."""
    before = None
    for _ in range(_MAX_CYCLES):
        if not has_heads(now):
            return
        plan = cycle(now)
        yield plan
        decided = bool(plan.admits or plan.preempts or plan.shrinks)
        if not decided and plan.order == before:
            return
        before = None if decided else plan.order
