"""`tenure top`: who holds which share of which card and how much of its memory, promised beside measured; live."""

from __future__ import annotations

from typing import Any

from tenure.domain.amounts import format_bytes

from .call import Call
from .cards import claims, source, standing
from .grammar import Option, Verb
from .render import age, emit, plain, table

VERB = Verb(
    usage="top [--once]",
    options=(Option(names=("--once", "-1"), help="print it once and return"),),
    details="""
    Memory is what jobs declared, out of what the card has; MEASURED is what the driver sees in use, where there is a
    driver to ask.  `-o json` implies --once.
    """,
)


def run(call: Call) -> int:
    if call.structured or call.form == "name":
        cards = call.client.get("/cards")
        emit(cards, call.form) if call.structured else print("\n".join(str(card["id"]) for card in cards))
        return 0
    if call.parsed.on("once"):
        print("\n".join(_picture(call)))
        return 0
    from .live import redraw

    return redraw(call, lambda: _picture(call))


def _picture(call: Call) -> list[str]:
    cards = call.client.get("/cards")
    waiting = [job for queue in call.client.get("/queues") for job in queue["jobs"]]
    shown = lines(cards)
    if waiting:
        shown += [
            "",
            f"{len(waiting)} wait: "
            + ", ".join(f"{job['id']} {plain(job.get('name') or '')} ({job.get('reason')})" for job in waiting[:5])
            + (", …" if len(waiting) > 5 else ""),
        ]
    return shown


def lines(cards: list[Any]) -> list[str]:
    shown: list[str] = []
    for card in cards:
        shown += [*([""] if shown else []), *_card(card)]
    return shown or ["no card: NVML finds none and none is declared (`tenure up --card 8x16Gi` declares one)"]


def _card(card: dict[str, Any]) -> list[str]:
    used = card["shares"] - card["shares_free"]
    bar = "█" * used + "░" * card["shares_free"] if card["shares"] <= 64 else ""
    head = f"{card['id']}  {plain(card.get('name') or '')}  ({source(card)})" + (
        "  cordoned" if card.get("cordoned") else ""
    )
    memory = f"memory {format_bytes(card['memory_declared'])} promised of {format_bytes(card['memory'])}"
    if card.get("memory_measured") is not None:
        memory += f", {format_bytes(card['memory_measured'])} measured"
    more = [
        f"{card[key]}{unit}"
        for key, unit in (("utilization", " % busy"), ("temperature", " °C"), ("power", " W"))
        if card.get(key) is not None
    ]
    shown = [
        head,
        f"  shares {bar} {used} of {card['shares']}",
        f"  {memory}" + (f", {', '.join(more)}" if more else ""),
    ]
    if card.get("cordon"):
        shown.append(f"  {standing(card)}")
    shown += [f"  {plain(line)}" for line in claims(card)]
    if card.get("error"):
        shown.append(f"  {plain(card['error'])}")
    if card["holders"]:
        rows = [_holder(holder) for holder in card["holders"]]
        shown += [
            f"  {line}"
            for line in table(
                ["ID", "NAME", "OWNER", "PRIORITY", "STATE", "TIME", "SHARES", "PROMISED", "MEASURED"], rows
            )
        ]
    return shown


def _holder(holder: dict[str, Any]) -> list[object]:
    measured = holder.get("memory_measured")
    return [
        holder["id"], holder.get("name"), holder.get("owner"), holder.get("priority_class"), holder.get("state"), age(holder.get("since")),
        holder["shares"], format_bytes(holder["memory_declared"]), "-" if measured is None else format_bytes(measured),
    ]  # fmt: skip
