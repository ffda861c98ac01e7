"""The capacity report as one page: plots drawn as SVG here, no script, nothing fetched, light and dark.

Plots stretch with the page; their words are HTML beside them, so that they stay legible at any width.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from tenure.domain.amounts import format_bytes

from .capacity import KINDS, percent
from .render import plain, span

__all__ = ["page"]

_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--ink:#1c2024;--dim:#60646c;--line:#e0e3e8;--tile:#f6f7f9;--held:#a9c5f8;--used:#e5710a;
--takable:#e0b33a;--stranded:#c4392f;--idle:#d6dae0;--lent:#2c8a5b}
@media (prefers-color-scheme:dark){:root{--bg:#14171a;--ink:#e6e8eb;--dim:#9ba1a8;--line:#2c3137;--tile:#1c2024;--held:#3c5f9c;
--used:#ff9e4a;--takable:#e8c35a;--stranded:#f0675c;--idle:#3a4047;--lent:#56c08c}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1080px;padding:24px 20px 48px;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;font-variant-numeric:tabular-nums}
h1{font-size:22px;margin:0}h2{font-size:16px;margin:32px 0 4px}h3{font-size:14px;margin:16px 0 2px;font-weight:600}
p{margin:2px 0 8px;color:var(--dim);max-width:75ch}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:18px 0 0}
.tile{background:var(--tile);border-radius:8px;padding:10px 12px}.tile b{display:block;font-size:21px;line-height:1.25}
.tile span{color:var(--dim);font-size:13px}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px}
th,td{padding:5px 12px 5px 0;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--dim);font-weight:500;white-space:nowrap}td.n,th.n{text-align:right;white-space:nowrap}
td:first-child{white-space:nowrap}td.why{min-width:220px;color:var(--dim)}
.plot{margin:4px 0 2px}.plot svg{display:block;width:100%;height:110px;background:var(--tile);border-radius:4px}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(max(300px,45%),1fr));gap:4px 24px}
.axis{display:flex;justify-content:space-between;white-space:nowrap;color:var(--dim);font-size:12px}
.top{color:var(--dim);font-size:12px}
.key{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;color:var(--dim);margin:4px 0}
.key i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px}
code{font-family:ui-monospace,monospace;font-size:13px;overflow-wrap:anywhere}
"""
_DAY_S = 86_400


def page(answer: dict[str, Any]) -> str:
    """A whole HTML document, UTF-8."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>Capacity, {_day(answer['since'])} to {_day(answer['until'])}</title><style>{_STYLE}</style>",
        "<h1>Capacity</h1>",
        f"<p>{_when(answer['since'])} to {_when(answer['until'])} UTC, {answer['jobs']} jobs.</p>",
        _tiles(answer),
        _pending(answer["pending"]),
        _cards(answer),
        _fragmentation(answer),
        _lending(answer),
        _waiting(answer["waiting"]),
    ]
    return "\n".join(parts) + "\n</html>\n"


# -- words


def _day(text: str) -> str:
    return text[:10]


def _when(text: str) -> str:
    return f"{text[:10]} {text[11:16]}"


def _text(value: object) -> str:
    return escape(plain(value))


def _table(head: Sequence[tuple[str, bool]], rows: Sequence[Sequence[object]], *, wide: int = -1) -> str:
    """`head` says of each column whether it is a number; column `wide` holds a sentence."""
    top = "".join(f"<th{' class=n' if number else ''}>{escape(name)}" for name, number in head)
    body = "".join(
        "<tr>" + "".join(
            f"<td{' class=n' if head[i][1] else ' class=why' if i == wide else ''}>{_text('-' if cell is None else cell)}"
            for i, cell in enumerate(row)
        )
        for row in rows
    )  # fmt: skip
    return f"<div class=scroll><table><tr>{top}{body}</table></div>"


def _tiles(answer: dict[str, Any]) -> str:
    cards = answer["cards"]
    shares = sum(c["shares"] for c in cards)
    held = sum(sum(c["shares_held"]) for c in cards) / max(1, answer["slots"])
    used = [c["utilization_mean"] for c in cards if c["utilization_mean"] is not None]
    now = answer["fragmentation"]["now"]
    waits = [row["longest_now_s"] for row in answer["pending"] if row["longest_now_s"] is not None]
    tiles = [
        (percent(held / shares) if shares else "-", "of shares held"),
        (
            percent(sum(used) / len(used)) if used else "not measured",
            "of the cards used" if used else "use of the cards",
        ),
        (str(sum(row["waiting_now"] for row in answer["pending"])), "jobs wait now"),
        (span(max(waits)) if waits else "-", "the longest wait now"),
        (str(now["stranded"]["shares"]), "shares free that no waiting job fits"),
    ]
    return "<div class=tiles>" + "".join(f"<div class=tile><b>{_text(b)}</b><span>{_text(s)}</span></div>" for b, s in tiles) + "</div>"  # fmt: skip


# -- plots


def _plot(answer: dict[str, Any], drawn: str, *, title: str, top: str) -> str:
    """One plot with its words: what is drawn, what full height means, and when it was."""
    return (
        f"<div><h3>{_text(title)}</h3><div class=top>{_text(top)}</div><div class=plot>"
        f"<svg viewBox='0 0 {answer['slots']} 100' preserveAspectRatio=none role=img aria-label='{_text(title)}'>"
        f"{drawn}</svg></div><div class=axis>{_axis(answer)}</div></div>"
    )


def _axis(answer: dict[str, Any]) -> str:
    from datetime import datetime, timedelta

    begin = datetime.fromisoformat(answer["since"])
    whole = (datetime.fromisoformat(answer["until"]) - begin).total_seconds()
    form = "%d %b" if whole > 3 * _DAY_S else "%d %b %H:%M" if whole > _DAY_S else "%H:%M"
    return "".join(f"<span>{(begin + timedelta(seconds=whole * k / 4)).strftime(form)}</span>" for k in range(5))


def _area(low: Sequence[float], high: Sequence[float], full: float, colour: str) -> str:
    """Steps between two series; nothing where they are the same everywhere."""
    if not full or all(b <= a for a, b in zip(low, high, strict=True)):
        return ""
    above = " ".join(f"{i},{_y(v, full)} {i + 1},{_y(v, full)}" for i, v in enumerate(high))
    below = " ".join(f"{i + 1},{_y(low[i], full)} {i},{_y(low[i], full)}" for i in range(len(low) - 1, -1, -1))
    return f"<polygon points='{above} {below}' fill='var(--{colour})'/>"


def _line(values: Sequence[float | None], full: float, colour: str) -> str:
    """Steps; broken where nothing is known."""
    path, drawing = [], False
    for i, value in enumerate(values):
        if value is None:
            drawing = False
            continue
        path.append(f"{'L' if drawing else 'M'}{i} {_y(value, full)}H{i + 1}")
        drawing = True
    if not path or not full:
        return ""
    return f"<path d='{''.join(path)}' fill=none stroke='var(--{colour})' stroke-width=1.5 vector-effect=non-scaling-stroke />"


def _y(value: float, full: float) -> str:
    return f"{100 - max(0.0, min(1.0, value / full)) * 100:.1f}".removesuffix(".0")


def _key(*entries: tuple[str, str]) -> str:
    return "<div class=key>" + "".join(f"<span><i style='background:var(--{c})'></i>{_text(t)}</span>" for c, t in entries) + "</div>"  # fmt: skip


# -- sections


def _pending(rows: Sequence[dict[str, Any]]) -> str:
    head = [("Queue", False), ("Jobs", True), ("Half within", True), ("Nine in ten within", True), ("Longest", True), ("Waiting now", True), ("Longest now", True)]  # fmt: skip
    cells = [
        [
            row["queue"], row["jobs"], *(None if row[k] is None else span(row[k]) for k in ("pending_p50_s", "pending_p90_s", "pending_max_s")),
            row["waiting_now"], None if row["longest_now_s"] is None else span(row["longest_now_s"]),
        ]
        for row in rows
    ]  # fmt: skip
    kept = sum(row["kept_out_now"] for row in rows)
    more = f" {kept} more are held, or wait for a time or another job." if kept else ""
    return (
        f"<h2>Pending time</h2><p>All the waiting of a job, also after it was preempted.{more}</p>{_table(head, cells)}"
    )


def _cards(answer: dict[str, Any]) -> str:
    shown = ["<h2>Cards: promised and used</h2>"]
    if not answer["cards"]:
        return shown[0] + "<p>There is no card.</p>"
    measured = any(card["measured"] for card in answer["cards"])
    if not measured:
        shown.append(
            "<p>What was used is not measured: these cards were declared, or no reading lies in this time.</p>"
        )
    shown.append(_key(("held", "held by jobs"), *([("used", "measured by NVML")] if measured else [])))
    for card in answer["cards"]:
        zero = [0.0] * answer["slots"]
        shares = _area(zero, card["shares_held"], card["shares"], "held")
        memory = _area(zero, card["memory_held"], card["memory"], "held")
        if card["measured"]:
            shares += _line(card["utilization"], 100, "used")
            memory += _line(card["memory_used"], card["memory"], "used")
        used = f", used {percent(card['utilization_mean'])}" if card["measured"] else ", use not measured"
        filled = f", used {percent(card['memory_used_mean'])}" if card["measured"] else ", use not measured"
        shown.append(f"<h3><code>{_text(card['id'])}</code> {_text(card['flavor'])}, {_text(card['source'])}</h3>")
        shown.append(
            "<div class=two>"
            + _plot(answer, shares, title=f"Shares: held {percent(card['allocation'])}{used}", top=f"full height: {card['shares']} shares, or 100 % use")
            + _plot(answer, memory, title=f"Memory: held {percent(card['memory_allocation'])}{filled}", top=f"full height: {format_bytes(card['memory'])}")
            + "</div>"
        )  # fmt: skip
    return "".join(shown)


def _fragmentation(answer: dict[str, Any]) -> str:
    found = answer["fragmentation"]
    shown = [
        "<h2>What lay free, and for whom</h2><p>Judged process by process, by the room on each card. Where somebody fits and still waits, "
        "quota or the order of the line keeps them out.</p>",
        _key(*((key, words) for key, words in KINDS)),
        "<div class=two>",
    ]
    for word, title in (("shares", "Shares"), ("memory", "Memory")):
        total = sum(card[word] for card in answer["cards"])
        below = [0.0] * answer["slots"]
        drawn = ""
        for key, _ in KINDS:
            above = [a + b for a, b in zip(below, found[word][key], strict=True)]
            drawn += _area(below, above, total, key)
            below = above
        full = f"{total} shares" if word == "shares" else format_bytes(total)
        shown.append(_plot(answer, drawn, title=f"{title} of all cards", top=f"full height: {full}"))
    return "".join(shown) + "</div>"


def _lending(answer: dict[str, Any]) -> str:
    """Only queues that lent or borrowed are drawn."""
    shown = ["<h2>Borrowed and lent</h2>"]
    plots = []
    for queue in answer["queues"]:
        for word, unit in (("shares", "shares"), ("memory", "memory")):
            part = queue[word]
            top = max([*part["borrowed"], *part["lent"]], default=0)
            if top <= 0:
                continue
            zero = [0.0] * answer["slots"]
            drawn = _area(zero, part["borrowed"], top, "used") + _area(zero, part["lent"], top, "lent")
            full = f"{top:.2f} shares" if word == "shares" else format_bytes(round(top))
            owns = f"{part['nominal']} shares" if word == "shares" else format_bytes(part["nominal"])
            plots.append(
                _plot(answer, drawn, title=f"{queue['queue']}: {unit}", top=f"full height: {full}; it owns {owns}")
            )
    if not plots:
        return shown[0] + "<p>No queue held more than its own quota.</p>"
    return shown[0] + _key(("used", "borrowed"), ("lent", "lent")) + f"<div class=two>{''.join(plots)}</div>"


def _waiting(rows: Sequence[dict[str, Any]]) -> str:
    title = "<h2>Who waits now, and for what</h2>"
    if not rows:
        return title + "<p>Nobody.</p>"
    head = [("Queue", False), ("Project", False), ("Owner", False), ("Jobs", True), ("Shares", True), ("Memory", True), ("Longest", True), ("Job", True), ("Why", False)]  # fmt: skip
    cells = [
        [
            r["queue"], r["project"], r["owner"], r["jobs"], r["shares"], format_bytes(r["memory"]), span(r["longest_s"]), r["job"],
            f"{r['reason']}: {r['message']}" if r["message"] else r["reason"],
        ]
        for r in rows
    ]  # fmt: skip
    return title + "<p>The longest first; the reason is that of the job named.</p>" + _table(head, cells, wide=8)
