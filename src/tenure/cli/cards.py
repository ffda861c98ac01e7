"""`tenure cards`: the cards that the platform knows, measured or declared."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tenure.domain.amounts import format_bytes

from .call import Call
from .each import each
from .grammar import Verb
from .render import emit, note, plain, table

VERB = Verb(
    usage="cards",
    details="`tenure top` shows who holds them.  A card that was declared with `up --card` is never taken for a measured one.",
)


def run(call: Call) -> int:
    cards = call.client.get("/cards")
    if call.structured:
        emit(cards, call.form)
    elif call.form == "name":
        for card in cards:
            print(card["id"])
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


def over_cards(call: Call, verb: str, body: dict[str, Any] | None = None) -> int:
    """One verb over the cards that were named."""
    return each(
        call,
        lambda word: call.client.post(f"/cards/{quote(word, safe='')}{verb}", body),
        lambda card: f"{card['id']}: {standing(card)}",
        of=call.parsed.positionals,
    )


def standing(card: dict[str, Any]) -> str:
    """In the pool or out, since whom, and who is still there."""
    cordon = card.get("cordon")
    if not card.get("cordoned") or not cordon:
        return "in the pool"
    word = "failed" if cordon["failed"] else "drained" if not card["holders"] else "draining"
    still = ", ".join(str(holder["id"]) for holder in card["holders"])
    return f"{word} ({plain(cordon['reason'])})" + (f"; still there: {still}" if still else "")


def _row(card: dict[str, Any]) -> list[object]:
    measured = card.get("memory_measured")
    return [
        card["id"], card.get("name"), source(card), card.get("flavor"), card["shares"], card["shares_free"], format_bytes(card["memory"]),
        format_bytes(card["memory_declared"]), "-" if measured is None else format_bytes(measured),
        card.get("error") or ("cordoned" if card.get("cordoned") else _claimed(card) or "ok"),
    ]  # fmt: skip


def _claimed(card: dict[str, Any]) -> str:
    return "; ".join(plain(line) for line in claims(card))


def claims(card: dict[str, Any]) -> list[str]:
    """Whose the card is, and until when, and each that comes after; nothing where nobody has claimed it."""
    lines = []
    for window in card.get("windows") or []:
        whose = f"window {window['id']} of {window['owner']}"
        if window["state"] == "active":
            lines.append(f"{whose} until {window['ends_at'][:19]}Z")
        elif window["state"] == "scheduled":
            lines.append(f"{whose} begins at {window['begin_at'][:19]}Z")
        elif (card.get("window") or {}).get("id") == window["id"]:
            lines.append(f"being cleared for {whose}")
        else:
            lines.append(f"{whose} waits")
    return lines


def source(card: dict[str, Any]) -> str:
    return "declared, not measured" if card.get("source") == "declared" else str(card.get("source") or "?")
