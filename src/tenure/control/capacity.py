"""The capacity report as numbers: who waited, who held the cards, who used them, and what nobody could use.

Worked out from the ledger and the samples of the cards; nothing is decided here.  The window is cut into equal slots;
series are the means of each slot, except fragmentation, which is the state at its middle.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenure.domain.amounts import GPU, GPU_MEMORY
from tenure.domain.ids import Instant
from tenure.domain.job import JobSpec
from tenure.domain.lifecycle import JobState
from tenure.domain.policy import Policy
from tenure.domain.workload import Card
from tenure.engine.expectation import quantile
from tenure.ledger import AttemptRow, JobRow

from .clock import wire
from .samples import Reading

__all__ = ["Facts", "report"]

SLOTS = 168
GATES = (
    "Suspended",
    "WaitingForDependency",
    "WaitingForBeginTime",
    "WaitingForArrayLimit",
    "WaitingForWindow",
    "OnHold",
)
NAMED = 12  # groups that wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that the report is made from."""

    since: Instant
    now: Instant
    policy: Policy
    cards: tuple[Card, ...]
    card_source: str
    rows: Sequence[JobRow]
    attempts: Mapping[str, Sequence[AttemptRow]]
    specs: Mapping[str, JobSpec]  # by digest
    readings: Iterable[Reading]


@dataclass(slots=True)
class _Slots:
    """Means over equal parts of the window."""

    since: int
    width: float
    sums: list[float] = field(default_factory=lambda: [0.0] * SLOTS)

    def add(self, begin: int, end: int, amount: float) -> None:
        begin = max(begin, self.since)
        first = int((begin - self.since) / self.width)
        for slot in range(first, SLOTS):
            left = self.since + slot * self.width
            overlap = min(end, left + self.width) - max(begin, left)
            if overlap <= 0:
                if left >= end:
                    return
                continue
            self.sums[slot] += amount * overlap / self.width

    def values(self, digits: int = 3) -> list[float]:
        return [round(v, digits) for v in self.sums]


@dataclass(frozen=True, slots=True)
class _Hold:
    begin: int
    end: int
    queue: str
    places: tuple[tuple[str, int, int], ...]  # card, shares, bytes


@dataclass(frozen=True, slots=True)
class _Wait:
    begin: int
    end: int | None  # None: it still waits
    row: JobRow


def report(facts: Facts) -> dict[str, Any]:
    """Times in seconds, memory in bytes.  Lists over time have one value a slot."""
    holds, waits = _holds(facts), _waits(facts)
    width = max(1.0, (facts.now - facts.since) / SLOTS)
    return {
        "since": wire(facts.since),
        "until": wire(facts.now),
        "slots": SLOTS,
        "slot_s": round(width / 1e6, 3),
        "jobs": len(facts.rows),
        "pending": _pending(facts, waits),
        "cards": _cards(facts, holds, width),
        "queues": _lending(facts, holds, width),
        "fragmentation": _fragmentation(facts, holds, waits, width),
        "waiting": _waiting(facts, waits),
    }


def _holds(facts: Facts) -> list[_Hold]:
    rows = {str(row.id): row for row in facts.rows}
    found = []
    for job, attempts in facts.attempts.items():
        for attempt in attempts:
            end = attempt.ended_at if attempt.ended_at is not None else facts.now
            places = attempt.placement if isinstance(attempt.placement, list) else []
            if places and end > facts.since:
                parts = tuple((str(p["card"]), int(p["shares"]), int(p["memory"])) for p in places)
                found.append(_Hold(attempt.created_at, end, rows[job].cluster_queue or "", parts))
    return found


def _waits(facts: Facts) -> list[_Wait]:
    """Every stretch of waiting: to the first attempt, and between attempts."""
    found = []
    for row in facts.rows:
        begin = row.submitted_at
        for attempt in facts.attempts.get(row.id, ()):
            found.append(_Wait(begin, attempt.created_at, row))
            begin = Instant(attempt.ended_at if attempt.ended_at is not None else facts.now)
        if row.state is JobState.QUEUED:
            found.append(_Wait(begin, None, row))
        elif row.state is JobState.ENDED and not row.attempts and row.ended_at is not None:
            found.append(_Wait(begin, row.ended_at, row))
    return [w for w in found if w.end is None or w.end > facts.since]


# -- who waited


def _pending(facts: Facts, waits: Sequence[_Wait]) -> list[dict[str, Any]]:
    """Per cluster queue.  A job's pending time is all its waiting, also after a preemption."""
    by_job: dict[str, int] = defaultdict(int)
    still: Counter[str] = Counter()
    longest: dict[str, int] = defaultdict(int)
    kept_out: Counter[str] = Counter()
    queue_of: dict[str, str] = {}
    for w in waits:
        queue = queue_of[w.row.id] = w.row.cluster_queue or "(no queue)"
        if w.end is None and w.row.reason in GATES:
            kept_out[queue] += 1
            continue
        by_job[w.row.id] += (w.end if w.end is not None else facts.now) - w.begin
        if w.end is None:
            still[queue] += 1
            longest[queue] = max(longest[queue], facts.now - w.begin)
    times: dict[str, list[int]] = {name: [] for name in facts.policy.cluster_queues}
    for job, us in by_job.items():
        times.setdefault(queue_of[job], []).append(us)
    shown = []
    for name, spent in times.items():
        spent.sort()
        shown.append(
            {
                "queue": name,
                "jobs": len(spent),
                "pending_p50_s": _s(quantile(spent, 0.5)) if spent else None,
                "pending_p90_s": _s(quantile(spent, 0.9)) if spent else None,
                "pending_max_s": _s(spent[-1]) if spent else None,
                "waiting_now": still[name],
                "longest_now_s": _s(longest[name]) if still[name] else None,
                "kept_out_now": kept_out[name],
            }
        )
    return shown


def _waiting(facts: Facts, waits: Sequence[_Wait]) -> list[dict[str, Any]]:
    """Who waits now for want of quota or place, by queue, project and owner; the longest first, with its reason."""
    groups: dict[tuple[str, str, str], list[_Wait]] = defaultdict(list)
    for w in waits:
        if w.end is None and w.row.reason not in GATES:
            groups[w.row.cluster_queue or "(no queue)", w.row.project, w.row.owner].append(w)
    shown = []
    for (queue, project, owner), group in groups.items():
        first = min(group, key=lambda w: (w.begin, w.row.seq))
        shares = sum(_spec(facts, w.row).shares * _spec(facts, w.row).processes for w in group)
        memory = sum(_spec(facts, w.row).gpu_memory * _spec(facts, w.row).processes for w in group)
        shown.append(
            {
                "queue": queue,
                "project": project,
                "owner": owner,
                "jobs": len(group),
                "shares": shares,
                "memory": memory,
                "longest_s": _s(facts.now - first.begin),
                "job": first.row.id,
                "reason": first.row.reason,
                "message": first.row.message,
                "reasons": dict(Counter(w.row.reason for w in group).most_common()),
            }
        )
    shown.sort(key=lambda g: (-float(str(g["longest_s"])), str(g["queue"]), str(g["project"]), str(g["owner"])))
    return shown[:NAMED]


def _spec(facts: Facts, row: JobRow) -> JobSpec:
    return facts.specs[row.spec_digest]


# -- who held the cards, and who used them


def _cards(facts: Facts, holds: Sequence[_Hold], width: float) -> list[dict[str, Any]]:
    shares = {str(c.id): _Slots(facts.since, width) for c in facts.cards}
    memory = {str(c.id): _Slots(facts.since, width) for c in facts.cards}
    for hold in holds:
        for where, s, m in hold.places:
            if where in shares:
                shares[where].add(hold.begin, hold.end, s)
                memory[where].add(hold.begin, hold.end, m)
    measured = _measured(facts, width)
    shown = []
    for card in facts.cards:
        held, bytes_held = shares[card.id].values(), memory[card.id].values(0)
        utilization, used = measured.get(card.id, (None, None))
        shown.append(
            {
                "id": card.id,
                "flavor": card.flavor,
                "source": facts.card_source,
                "shares": card.shares,
                "memory": card.memory,
                "shares_held": held,
                "memory_held": bytes_held,
                "allocation": round(sum(held) / SLOTS / card.shares, 4) if card.shares else None,
                "memory_allocation": round(sum(bytes_held) / SLOTS / card.memory, 4) if card.memory else None,
                "measured": utilization is not None,
                "utilization": utilization,
                "memory_used": used,
                "utilization_mean": _mean(utilization, 100),
                "memory_used_mean": _mean(used, card.memory),
            }
        )
    return shown


def _measured(facts: Facts, width: float) -> dict[str, tuple[list[float | None], list[float | None]]]:
    """Means of the samples in each slot; None where there was none."""
    sums: dict[str, list[list[float]]] = {}
    for r in facts.readings:
        slot = min(SLOTS - 1, int((r.at - facts.since) / width))
        if r.at > facts.now or slot < 0:
            continue
        parts = sums.setdefault(r.card, [[0.0, 0.0, 0.0, 0.0] for _ in range(SLOTS)])[slot]
        if r.utilization is not None:
            parts[0] += r.utilization
            parts[1] += 1
        if r.memory_used is not None:
            parts[2] += r.memory_used
            parts[3] += 1
    return {
        card: (
            [round(p[0] / p[1], 1) if p[1] else None for p in slots],
            [round(p[2] / p[3]) if p[3] else None for p in slots],
        )
        for card, slots in sums.items()
    }


def _mean(values: Sequence[float | None] | None, whole: int) -> float | None:
    known = [v for v in values or () if v is not None]
    return round(sum(known) / len(known) / whole, 4) if known and whole else None


# -- who borrowed from whom


def _lending(facts: Facts, holds: Sequence[_Hold], width: float) -> list[dict[str, Any]]:
    """Per cluster queue: used, borrowed and lent shares and memory.  A pool has no addresses: each idle queue of a cohort
    lends its part in proportion to what it could."""
    policy = facts.policy
    used = {q: {GPU: _Slots(facts.since, width), GPU_MEMORY: _Slots(facts.since, width)} for q in policy.cluster_queues}
    for hold in holds:
        if hold.queue in used:
            for _, s, m in hold.places:
                used[hold.queue][GPU].add(hold.begin, hold.end, s)
                used[hold.queue][GPU_MEMORY].add(hold.begin, hold.end, m)
    nominal = {q: _nominal(policy, q) for q in policy.cluster_queues}
    roots = {q: _root(policy, q) for q in policy.cluster_queues}
    shown = []
    for name in policy.cluster_queues:
        entry: dict[str, Any] = {"queue": name, "cohort": policy.cluster_queues[name].cohort}
        for resource, word, digits in ((GPU, "shares", 3), (GPU_MEMORY, "memory", 0)):
            mine = used[name][resource].sums
            over = [max(0.0, v - nominal[name][resource]) for v in mine]
            family = [q for q in policy.cluster_queues if roots[q] == roots[name] and roots[q] is not None]
            lent = [_lent(slot, name, family, used, nominal, resource) for slot in range(SLOTS)]
            entry[word] = {
                "nominal": nominal[name][resource],
                "used": [round(v, digits) for v in mine],
                "borrowed": [round(v, digits) for v in over],
                "lent": [round(v, digits) for v in lent],
            }
        shown.append(entry)
    return shown


def _lent(
    slot: int,
    name: str,
    family: Sequence[str],
    used: Mapping[str, Mapping[str, _Slots]],
    nominal: Mapping[str, Counter[str]],
    resource: str,
) -> float:
    gaps = {q: nominal[q][resource] - used[q][resource].sums[slot] for q in family}
    borrowed = sum(-gap for gap in gaps.values() if gap < 0)
    idle = sum(gap for gap in gaps.values() if gap > 0)
    mine = gaps.get(name, 0)
    return 0.0 if mine <= 0 or idle <= 0 else min(borrowed, idle) * mine / idle


def _nominal(policy: Policy, queue: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for group in policy.cluster_queues[queue].resource_groups:
        for flavor in group.flavors:
            total.update({resource: quota.nominal for resource, quota in flavor.resources.items()})
    return total


def _root(policy: Policy, queue: str) -> str | None:
    cohort = policy.cluster_queues[queue].cohort
    seen: set[str] = set()
    while cohort is not None and cohort not in seen:
        seen.add(cohort)
        above = policy.cohorts.get(cohort)
        if above is None or above.parent is None:
            return cohort
        cohort = above.parent
    return cohort


# -- what nobody could use


@dataclass(slots=True)
class _Free:
    """Free shares and bytes, by whether somebody who waits could take them."""

    held: list[int] = field(default_factory=lambda: [0, 0])
    idle: list[int] = field(default_factory=lambda: [0, 0])  # free, and nobody waits
    takable: list[int] = field(
        default_factory=lambda: [0, 0]
    )  # a process that waits would fit: quota or order keeps it
    stranded: list[int] = field(default_factory=lambda: [0, 0])  # free, and no process that waits fits there


def _fragmentation(
    facts: Facts, holds: Sequence[_Hold], waits: Sequence[_Wait], width: float
) -> dict[str, Any]:  # fmt: skip
    """At the middle of every slot, and now.  Judged process by process and by place alone, not by quota."""
    moments = [facts.since + int((slot + 0.5) * width) for slot in range(SLOTS)] + [facts.now]
    free = {str(c.id): [c.shares, c.memory] for c in facts.cards}
    asks: Counter[tuple[int, int, bool]] = Counter()
    coming = sorted(holds, key=lambda h: h.begin)
    arriving = sorted((w for w in waits if w.row.reason not in GATES or w.end is not None), key=lambda w: w.begin)
    going: list[tuple[int, int, _Hold]] = []
    leaving: list[tuple[int, int, tuple[int, int, bool]]] = []
    i = j = 0
    found: list[_Free] = []
    for at in moments:
        while i < len(coming) and coming[i].begin <= at:
            _move(free, coming[i], -1)
            heapq.heappush(going, (coming[i].end, i, coming[i]))
            i += 1
        while j < len(arriving) and arriving[j].begin <= at:
            spec, end = _spec(facts, arriving[j].row), arriving[j].end
            ask = (spec.shares, spec.gpu_memory, spec.whole)
            asks[ask] += 1
            if end is not None:
                heapq.heappush(leaving, (end, j, ask))
            j += 1
        while going and going[0][0] <= at and (going[0][0] < facts.now or at < facts.now):
            _move(free, heapq.heappop(going)[2], 1)
        while leaving and leaving[0][0] <= at:
            asks[heapq.heappop(leaving)[2]] -= 1
        found.append(_look(facts, free, [ask for ask, n in asks.items() if n > 0 and (ask[0] or ask[1] or ask[2])]))
    words = ("held", "idle", "takable", "stranded")
    over, now = found[:-1], found[-1]
    return {
        "shares": {word: [getattr(f, word)[0] for f in over] for word in words},
        "memory": {word: [getattr(f, word)[1] for f in over] for word in words},
        "now": {word: {"shares": getattr(now, word)[0], "memory": getattr(now, word)[1]} for word in words},
    }


def _move(free: dict[str, list[int]], hold: _Hold, sign: int) -> None:
    for card, shares, memory in hold.places:
        if card in free:
            free[card][0] += sign * shares
            free[card][1] += sign * memory


def _look(facts: Facts, free: Mapping[str, Sequence[int]], asks: Sequence[tuple[int, int, bool]]) -> _Free:
    found = _Free()
    for card in facts.cards:
        shares, memory = free[card.id]
        found.held[0] += card.shares - shares
        found.held[1] += card.memory - memory
        if not asks:
            kind = found.idle
        elif any(
            memory >= m and (shares == card.shares if whole else shares >= s) for s, m, whole in asks
        ):  # fmt: skip
            kind = found.takable
        else:
            kind = found.stranded
        kind[0] += max(0, shares)
        kind[1] += max(0, memory)
    return found


def _s(us: int) -> float:
    return round(us / 1e6, 3)
