"""`tenure capacity report`: who waited, who held the cards, who used them, and what nobody could use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tenure.domain.amounts import format_bytes

from .call import Call
from .grammar import FORMATS, Option, Usage, Verb, nearest
from .in_process import refusals
from .render import emit, note, plain, span, table
from .times import seconds_of

VERB = Verb(
    usage="capacity report [--since 7d] [-o html] [--output FILE]",
    options=(
        Option(names=("--since",), value="DURATION", help="how far back, such as 7d (default) or 12h"),
        Option(names=("--output",), value="FILE", help="write it there; a name that ends in .html makes a page"),
        Option(
            names=("--format", "-o"),
            value="json|yaml|html",
            choices=(*FORMATS, "html"),
            help="how to print it; html is one page with plots that needs nothing else",
        ),
    ),
    positionals=(0, 1),
    what="argument",
    details="""
    It is read from the ledger, with a running platform or without.  What the cards were really used for is there where
    NVML measures them; a card that was declared says so.
    """,
    examples=(("tenure capacity report --output week.html", "the last week as a page"),),
)

WORDS = ("report",)


def run(call: Call) -> int:
    words = call.parsed.positionals or ["report"]
    if words[0] not in WORDS:
        raise Usage(f"{words[0]!r}: there is report{nearest(words[0], WORDS)}")
    since_s = seconds_of(call.parsed.text("since") or "7d", flag="--since")
    answer = _ask(call, since_s)
    output = call.parsed.text("output")
    form = call.form
    if output is not None and form == "table" and output.endswith((".html", ".htm")):
        form = "html"
    if output is None and form in ("json", "yaml"):
        emit(answer, form)
        return 0
    text = _text(answer, form)
    if output is None:
        print(text, end="")
        return 0
    try:
        Path(output).write_text(text, "utf-8")
    except OSError as error:
        raise Usage(f"--output {output}: {(error.strerror or str(error)).lower()}") from None
    note(f"written to {output}")
    return 0


def _ask(call: Call, since_s: float) -> Any:
    if call.settings.url:
        return call.client.call("GET", "/capacity", query={"since_s": since_s}, timeout_s=120)
    from tenure.control import views

    with refusals():
        return views.capacity_at_rest(call.settings, since_s=since_s)


def _text(answer: dict[str, Any], form: str) -> str:
    if form == "html":
        from .capacity_page import page

        return page(answer)
    if form in ("json", "yaml"):
        import json

        return json.dumps(answer, ensure_ascii=False, indent=2) + "\n"
    return "\n".join(lines(answer)) + "\n"


def lines(answer: dict[str, Any]) -> list[str]:
    """On one screen: a table a question."""
    shown = [f"{answer['jobs']} jobs, {answer['since'][:16]}Z to {answer['until'][:16]}Z", "", "pending time"]
    shown += table(
        ["QUEUE", "JOBS", "P50", "P90", "MAX", "WAITING NOW", "LONGEST NOW"],
        [
            [
                row["queue"],
                row["jobs"],
                _span(row["pending_p50_s"]),
                _span(row["pending_p90_s"]),
                _span(row["pending_max_s"]),
                str(row["waiting_now"]) + (f" (+{row['kept_out_now']} held or not due)" if row["kept_out_now"] else ""),
                _span(row["longest_now_s"]),
            ]
            for row in answer["pending"]
        ],
    )
    shown += ["", "cards: promised against used, means of the time"]
    shown += (
        table(["CARD", "SHARES HELD", "USED", "MEMORY HELD", "USED"], [_card(card) for card in answer["cards"]])
        if answer["cards"]
        else ["  no card"]
    )
    shown += ["", "borrowed and lent, means of the time"]
    shown += _lending(answer["queues"])
    now = answer["fragmentation"]["now"]
    shown += ["", "the cards now"]
    shown += [
        f"  {words}: {now[key]['shares']} shares, {format_bytes(now[key]['memory'])}"
        for key, words in KINDS
        if now[key]["shares"] or now[key]["memory"]
    ] or ["  no card"]
    stranded = answer["fragmentation"]["shares"]["stranded"]
    shown.append(f"  over the time, {sum(stranded) / max(1, len(stranded)):.2f} shares lay free that nobody who waited could take")  # fmt: skip
    shown += ["", "who waits"]
    rows = answer["waiting"]
    shown += (
        table(
            ["QUEUE", "PROJECT", "OWNER", "JOBS", "SHARES", "MEMORY", "LONGEST", "JOB", "WHY"],
            [
                [
                    r["queue"], r["project"], r["owner"], r["jobs"], r["shares"], format_bytes(r["memory"]), span(r["longest_s"]),
                    r["job"], f"{r['reason']}: {r['message']}",
                ]
                for r in rows
            ],
        )
        if rows
        else ["  nobody"]
    )  # fmt: skip
    return shown


KINDS = (
    ("held", "held"),
    ("takable", "free; somebody who waits would fit, and quota or order keeps them out"),
    ("stranded", "free; nobody who waits fits"),
    ("idle", "free; nobody waits"),
)


def _span(seconds: float | None) -> str | None:
    return None if seconds is None else span(seconds)


def _card(card: dict[str, Any]) -> list[object]:
    measured = card["measured"]
    return [
        plain(card["id"]),
        percent(card["allocation"]),
        percent(card["utilization_mean"]) if measured else "not measured",
        percent(card["memory_allocation"]),
        percent(card["memory_used_mean"]) if measured else "not measured",
    ]


def percent(part: float | None) -> str:
    return "-" if part is None else f"{part:.0%}"


def _lending(queues: list[dict[str, Any]]) -> list[str]:
    rows = []
    for queue in queues:
        cells: list[object] = [queue["queue"], queue["cohort"]]
        for word in ("shares", "memory"):
            part = queue[word]
            nominal = part["nominal"] if word == "shares" else format_bytes(part["nominal"])
            cells += [nominal, *(_mean(part[what], word) for what in ("used", "borrowed", "lent"))]
        rows.append(cells)
    head = ["QUEUE", "COHORT", "SHARES", "USED", "BORROWED", "LENT", "MEMORY", "USED", "BORROWED", "LENT"]
    return table(head, rows)


def _mean(values: list[float], word: str) -> str:
    mean = sum(values) / max(1, len(values))
    return f"{mean:.2f}" if word == "shares" else format_bytes(round(mean))
