"""What nobody could use: free shares and memory, by whether somebody who waits would fit there."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .facts import KEPT_OUT, SLOTS, Facts, Hold, Wait

__all__ = ["fragmentation"]


@dataclass(slots=True)
class _Free:
    """Free shares and bytes, by whether somebody who waits could take them."""

    held: list[int] = field(default_factory=lambda: [0, 0])
    idle: list[int] = field(default_factory=lambda: [0, 0])  # free, and nobody waits
    takable: list[int] = field(default_factory=lambda: [0, 0])  # one that waits would fit: quota or order keeps it
    stranded: list[int] = field(default_factory=lambda: [0, 0])  # free, and no process that waits fits there


def fragmentation(facts: Facts, holds: Sequence[Hold], waits: Sequence[Wait], width: float) -> dict[str, Any]:
    """At the middle of every slot, and now.  Judged process by process and by place alone, not by quota."""
    moments = [facts.since + int((slot + 0.5) * width) for slot in range(SLOTS)] + [facts.now]
    free = {str(c.id): [c.shares, c.memory] for c in facts.cards}
    asks: Counter[tuple[int, int, bool]] = Counter()
    coming = sorted(holds, key=lambda h: h.begin)
    arriving = sorted((w for w in waits if w.row.reason not in KEPT_OUT or w.end is not None), key=lambda w: w.begin)
    going: list[tuple[int, int, Hold]] = []
    leaving: list[tuple[int, int, tuple[int, int, bool]]] = []
    i = j = 0
    found: list[_Free] = []
    for at in moments:
        while i < len(coming) and coming[i].begin <= at:
            _move(free, coming[i], -1)
            heapq.heappush(going, (coming[i].end, i, coming[i]))
            i += 1
        while j < len(arriving) and arriving[j].begin <= at:
            spec, end = facts.spec_of(arriving[j].row), arriving[j].end
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


def _move(free: dict[str, list[int]], hold: Hold, sign: int) -> None:
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
        elif any(memory >= m and (shares == card.shares if whole else shares >= s) for s, m, whole in asks):
            kind = found.takable
        else:
            kind = found.stranded
        kind[0] += max(0, shares)
        kind[1] += max(0, memory)
    return found
