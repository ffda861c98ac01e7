"""Which flavor pays for each resource of a workload, and how: at once, after preemption, or not at all.

`assign` looks and changes nothing.  Its verdict carries Kueue's own reasons and messages, how far the scan of flavors
got (so that the next evaluation may go on from there), and the usage that admission would cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from tenure.domain.policy import CurrencyPreference, Fungibility, WhenCanBorrow, WhenCanPreempt
from tenure.domain.reasons import PendingReason

from .forms import Demand, GroupDemand, PodDemand, whole_card_amount
from .items import Item, Scan
from .preemption import Oracle
from .queues import Queue
from .quota import Usage
from .spelling import spell
from .world import World

__all__ = ["Assignment", "Mode", "PodAssignment", "assign"]


class Mode(IntEnum):
    """What stands between a workload and its quota, from worst to best."""

    NO_FIT = 0
    NO_CANDIDATES = 1  # preemption might help, and there is nobody to preempt now
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4

    @property
    def by_preemption(self) -> bool:
        return Mode.NO_FIT < self < Mode.FIT


_SEVERITY = {
    "": 0,
    PendingReason.TOPOLOGY_PLACEMENT_FAILED: 1,
    PendingReason.WAITING_FOR_QUOTA: 2,
    PendingReason.EXCEEDS_MAX_QUOTA: 3,
    PendingReason.NO_MATCHING_FLAVOR: 4,
}
_Reason = str  # a PendingReason, or "" for none


def _worst(a: _Reason, b: _Reason) -> _Reason:
    return a if _SEVERITY[a] >= _SEVERITY[b] else b


@dataclass(slots=True)
class Choice:
    """One resource's flavor.  `tried` is where the scan stopped, -1 at the end of the list."""

    flavor: str
    mode: Mode
    level: int
    tried: int = -1


@dataclass(slots=True)
class PodAssignment:
    """`amounts` are for all `count` processes.  `attempts` are the flavors that do not fit, by resource group."""

    demand: PodDemand
    count: int
    amounts: dict[str, int]
    choices: dict[str, Choice] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    attempts: list[tuple[int, _Reason | None]] = field(default_factory=list)

    @property
    def mode(self) -> Mode:
        if not self.reasons:
            return Mode.FIT
        return min((c.mode for c in self.choices.values()), default=Mode.NO_FIT)


@dataclass(slots=True)
class Assignment:
    """The verdict on a workload.  `level` is Kueue's borrowing level: how high up the quota is found."""

    pod_sets: list[PodAssignment]
    usage: Usage
    level: int
    scan: Scan
    mode: Mode
    deferred: bool = False

    @property
    def request(self) -> Usage:
        return {i: amount for i, amount in self.usage.items() if amount}

    @property
    def message(self) -> str:
        parts = []
        for ps in self.pod_sets:
            if ps.reasons:
                why = ", ".join(sorted(ps.reasons))
                parts.append(f"couldn't assign flavors to pod set {ps.demand.pod_set.name}: {why}")
        return "; ".join(parts)

    def need(self, index: Mapping[tuple[str, str], int]) -> frozenset[int]:
        """The pairs for which somebody must go."""
        return frozenset(
            index[c.flavor, resource]
            for ps in self.pod_sets
            for resource, c in ps.choices.items()
            if c.mode.by_preemption
        )

    @property
    def no_fit_reason(self) -> _Reason:
        """The mildest obstacle of each group's alternatives, then the worst over groups and pod sets."""
        overall: _Reason = ""
        for ps in self.pod_sets:
            if ps.mode is not Mode.NO_FIT:
                continue
            if not ps.attempts:
                overall = _worst(overall, PendingReason.NO_MATCHING_FLAVOR)
                continue
            by_group: dict[int, _Reason] = {}
            for group, reason in ps.attempts:
                if reason is None:
                    continue
                known = by_group.get(group)
                if known is None or _SEVERITY[reason] < _SEVERITY[known]:
                    by_group[group] = reason
            for reason in by_group.values():
                overall = _worst(overall, reason)
        return overall


def assign(
    world: World,
    queue: Queue,
    item: Item,
    oracle: Oracle,
    *,
    counts: Sequence[int] | None = None,
    nominated: Sequence[Mapping[str, str]] | None = None,
) -> Assignment:
    """Judge a workload against the tree as it stands.  `counts` asks for fewer processes (partial admission);
    `nominated` allows per pod set and resource only the flavor that an earlier evaluation chose."""
    demand = world.demand(item, queue)
    return _Assigner(world, queue, item, oracle, demand, nominated).run(counts)


class _Assigner:
    def __init__(
        self,
        world: World,
        queue: Queue,
        item: Item,
        oracle: Oracle,
        demand: Demand,
        nominated: Sequence[Mapping[str, str]] | None,
    ) -> None:
        self.world = world
        self.queue = queue
        self.item = item
        self.oracle = oracle
        self.demand = demand
        self.nominated = nominated
        self.usage: Usage = {}

    def run(self, counts: Sequence[int] | None) -> Assignment:
        done: list[PodAssignment] = []
        tried: list[dict[str, int]] = []
        level = 0
        for k, demand in enumerate(self.demand.pod_sets):
            count = demand.pod_set.count if counts is None else counts[k]
            ps = PodAssignment(demand, count, {r: n * count for r, n in demand.amounts.items()})
            done.append(ps)
            failed = self._pod_set(k, ps)
            index = self.world.tree.index
            for resource, choice in ps.choices.items():
                level = max(level, choice.level)
                i = index[choice.flavor, resource]
                if self.item.form.whole_card:
                    each = demand.amounts[resource]
                    shares = self.world.cards.whole_shares(choice.flavor)
                    ps.amounts[resource] = whole_card_amount(resource, each, shares) * count
                self.usage[i] = self.usage.get(i, 0) + ps.amounts[resource]
            tried.append({resource: c.tried for resource, c in ps.choices.items()})
            if failed:
                break
        mode = min((ps.mode for ps in done), default=Mode.FIT)
        scan = Scan(tuple(tried), self.queue.generation, self.world.cycle_no, self.item.form)
        return Assignment(done, self.usage, level, scan, mode)

    def _pod_set(self, k: int, ps: PodAssignment) -> bool:
        """Fill in one pod set; True where it found no flavor, and the rest need not be asked."""
        missing = ps.demand.missing
        for n, group in enumerate(ps.demand.groups):
            if missing is not None and missing[0] == n:
                break
            choices, reasons = self._group(k, n, ps, group)
            if not choices:
                ps.choices, ps.reasons = {}, reasons
                return True
            ps.choices.update(choices)
            ps.reasons.extend(reasons)
        if missing is not None:
            ps.choices, ps.reasons = {}, [f"resource {missing[1]} unavailable in ClusterQueue"]
            return True
        return False

    def _group(self, k: int, n: int, ps: PodAssignment, group: GroupDemand) -> tuple[dict[str, Choice], list[str]]:
        """Walk the flavors of one group in the order in which they are written."""
        fungibility = self.queue.spec.fungibility
        first = group.amounts[0][0]
        reasons: list[str] = []
        best: dict[str, Choice] = {}
        best_rank = (Mode.NO_FIT, 1 << 60)
        flavors = group.group.flavors
        at = -1
        for at in range(self.item.scan.start(k, first) if self.item.scan else 0, len(flavors)):
            flavor = flavors[at].flavor
            if self.nominated is not None and self.nominated[k].get(first) != flavor:
                reasons.append(
                    f"skipping flavor {flavor} as it is not found in the nomination mapping for resource {first}"
                )
                continue
            barred = group.barred[at]
            if barred is not None:
                reasons.append(barred)
                ps.attempts.append((n, PendingReason.NO_MATCHING_FLAVOR))
                continue
            choices, rank, why = self._flavor(ps, group, flavor, reasons)
            ps.attempts.append((n, why if rank[0] is Mode.NO_FIT else None))
            if not _try_next(rank, fungibility):
                best, best_rank = choices, rank
                break
            if _preferred(rank, best_rank, fungibility):
                best, best_rank = choices, rank
        tried = -1 if at == len(flavors) - 1 else at
        for choice in best.values():
            choice.tried = tried
        return best, [] if best_rank[0] is Mode.FIT else reasons

    def _flavor(
        self, ps: PodAssignment, group: GroupDemand, flavor: str, reasons: list[str]
    ) -> tuple[dict[str, Choice], tuple[Mode, int], _Reason]:
        """All the group's resources in one flavor; the worst of them counts."""
        choices: dict[str, Choice] = {}
        worst = (Mode.FIT, 0)
        why: _Reason = ""
        for resource, each in group.amounts:
            if self.item.form.whole_card:
                each = whole_card_amount(resource, each, self.world.cards.whole_shares(flavor))  # noqa: PLW2901
            mode, level, reason, text = self._resource(flavor, resource, each * ps.count)
            if text:
                reasons.append(text)
                why = _worst(why, reason)
            if _preferred(worst, (mode, level), self.queue.spec.fungibility):
                worst = (mode, level)
            if worst[0] is not Mode.NO_FIT:
                choices[resource] = Choice(flavor, mode, level)
        return choices, worst, why

    def _resource(self, flavor: str, resource: str, amount: int) -> tuple[Mode, int, _Reason, str]:
        """Mode, borrowing level, reason and sentence for one resource in one flavor."""
        node = self.queue.node
        i = self.world.tree.index[flavor, resource]
        assumed = self.usage.get(i, 0)
        total = assumed + amount
        if total > node.potential[i]:
            text = (
                f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests "
                f"({spell(resource, assumed)}) + current podset request ({spell(resource, amount)}) > maximum "
                f"capacity ({spell(resource, node.potential[i])})"
            )
            return Mode.NO_FIT, 0, PendingReason.EXCEEDS_MAX_QUOTA, text
        level, below_root = node.lowest_fit(i, total)
        available = node.available(i)
        if total <= available:
            return Mode.FIT, level, "", ""
        more = spell(resource, total - available)
        text = f"insufficient unused quota for {resource} in flavor {flavor}, {more} more needed"
        if total <= node.nominal[i] or below_root or self.queue.while_borrowing:
            targets = self.oracle.targets(self.item, self.queue, frozenset((i,)), {i: total})
            if not targets:
                return Mode.NO_CANDIDATES, level, "", text
            for target in targets:
                target.queue.node.remove_all(target.freed)
            level, _ = node.lowest_fit(i, total)
            for target in targets:
                target.queue.node.add_all(target.freed)
            own = any(t.queue is self.queue for t in targets)
            return (Mode.PREEMPT if own else Mode.RECLAIM), level, "", text
        return Mode.NO_FIT, level, PendingReason.WAITING_FOR_QUOTA, text


def _preferred(a: tuple[Mode, int], b: tuple[Mode, int], fungibility: Fungibility) -> bool:
    """Is (mode, level) `a` better than `b`, in the currency that the queue prefers to pay in?"""
    if a[0] is Mode.NO_FIT or b[0] is Mode.NO_FIT:
        return a[0] is not Mode.NO_FIT
    hopeless = a[0] is Mode.NO_CANDIDATES
    if hopeless is not (b[0] is Mode.NO_CANDIDATES):
        return not hopeless
    if fungibility.preference is CurrencyPreference.PREEMPTION_OVER_BORROWING:
        return (-a[1], a[0]) > (-b[1], b[0])
    return (a[0], -a[1]) > (b[0], -b[1])


def _try_next(rank: tuple[Mode, int], fungibility: Fungibility) -> bool:
    mode, level = rank
    if mode in (Mode.NO_FIT, Mode.NO_CANDIDATES):
        return True
    if mode.by_preemption and fungibility.when_can_preempt is WhenCanPreempt.TRY_NEXT_FLAVOR:
        return True
    return level > 0 and fungibility.when_can_borrow is WhenCanBorrow.TRY_NEXT_FLAVOR
