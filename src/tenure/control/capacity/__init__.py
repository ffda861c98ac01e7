"""The capacity report as numbers: who waited, who held the cards, who used them, and what nobody could use.

Worked out from the ledger and the samples of the cards; nothing is decided here.  The window is cut into equal slots;
series are the means of each slot, except fragmentation, which is the state at its middle.
"""

from __future__ import annotations

from typing import Any

from ..clock import wire
from .cards import cards
from .facts import SLOTS, Facts, holds_in, waits_in
from .fragmentation import fragmentation
from .lending import lending
from .waiting import pending, waiting

__all__ = ["Facts", "report"]


def report(facts: Facts) -> dict[str, Any]:
    """Times in seconds, memory in bytes.  Lists over time have one value a slot."""
    holds, waits = holds_in(facts), waits_in(facts)
    width = max(1.0, (facts.now - facts.since) / SLOTS)
    return {
        "since": wire(facts.since),
        "until": wire(facts.now),
        "slots": SLOTS,
        "slot_s": round(width / 1e6, 3),
        "jobs": len(facts.rows),
        "pending": pending(facts, waits),
        "cards": cards(facts, holds, width),
        "queues": lending(facts, holds, width),
        "fragmentation": fragmentation(facts, holds, waits, width),
        "waiting": waiting(facts, waits),
    }
