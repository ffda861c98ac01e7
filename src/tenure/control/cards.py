"""Which cards there are: found by NVML, or declared by a flag and remembered for the next plain start."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tenure.domain.workload import Card
from tenure.telemetry.cards import FoundCard, declared, discover, to_card

__all__ = ["Cards", "find"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """`source` is said wherever a number of these is shown: a declared card is not a measured one."""

    cards: tuple[Card, ...]
    found: tuple[FoundCard, ...]
    source: Literal["measured", "declared", "none"]
    reason: str = ""


def find(flags: Sequence[str], remembered: Path) -> Cards:
    """A flag wins, then what a flag said before (`auto` forgets that), then NVML.  Raises InvalidRequest for a flag that cannot be read."""
    if list(flags) == ["auto"]:
        remembered.unlink(missing_ok=True)
        flags = ()
    texts = list(flags) or _recall(remembered)
    if texts:
        found = tuple(declared(texts))
        if texts != _recall(remembered):  # a home that is only looked at may be read-only, or full
            _remember(remembered, texts)
        return Cards(cards=tuple(to_card(card) for card in found), found=found, source="declared")
    discovery = discover()
    cards = tuple(to_card(card) for card in discovery.cards)
    source: Literal["measured", "none"] = "measured" if cards else "none"
    return Cards(cards=cards, found=tuple(discovery.cards), source=source, reason=discovery.reason)


def _recall(path: Path) -> list[str]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return []
    texts = data.get("declared") if isinstance(data, dict) else None
    return [str(text) for text in texts] if isinstance(texts, list) else []


def _remember(path: Path, texts: Sequence[str]) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"declared": list(texts)}) + "\n", encoding="utf-8")
    fresh.replace(path)
