"""Who held the cards, and how much they were really used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .facts import SLOTS, Facts, Hold, Slots

__all__ = ["cards"]


def cards(facts: Facts, holds: Sequence[Hold], width: float) -> list[dict[str, Any]]:
    shares = {str(c.id): Slots(facts.since, width) for c in facts.cards}
    memory = {str(c.id): Slots(facts.since, width) for c in facts.cards}
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
