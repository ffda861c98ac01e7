"""`tenure cards`: the cards that the platform knows, measured or declared."""

from __future__ import annotations

from typing import Any

from tenure.domain.amounts import format_bytes

from .call import Call
from .grammar import Verb
from .render import emit, note, table

VERB = Verb(
    usage="cards",
    details="`tenure top` shows who holds them.  A card that was declared with `up --card` is never taken for a measured one.",
)


def run(call: Call) -> int:
    cards = call.client.get("/cards")
    if call.structured:
        emit(cards, call.form)
    elif call.form == "name":
        print("\n".join(str(card["id"]) for card in cards)) if cards else None
    elif cards:
        print(
            "\n".join(
                table(
                    ["CARD", "NAME", "SOURCE", "FLAVOR", "SHARES", "FREE", "MEMORY", "PROMISED", "MEASURED", "STATE"],
                    [_row(card) for card in cards],
                )
            )
        )
    else:
        note("no card: NVML finds none and none is declared; `tenure doctor` says why")
    return 0


def _row(card: dict[str, Any]) -> list[object]:
    measured = card.get("memory_measured")
    return [
        card["id"], card.get("name"), source(card), card.get("flavor"), card["shares"], card["shares_free"], format_bytes(card["memory"]),
        format_bytes(card["memory_declared"]), "-" if measured is None else format_bytes(measured),
        card.get("error") or ("cordoned" if card.get("cordoned") else "ok"),
    ]  # fmt: skip


def source(card: dict[str, Any]) -> str:
    return "declared, not measured" if card.get("source") == "declared" else str(card.get("source") or "?")
