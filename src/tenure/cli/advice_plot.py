"""The two curves of advice as an SVG of our own: share-hours held and seconds waited, by the idle window; light and dark."""

from __future__ import annotations

from html import escape
from math import log
from typing import Any

from .render import plain

__all__ = ["drawing"]

WIDTH, HEIGHT = 860, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 72, 70, 74
LABEL_GAP = 44  # labels of the axis that would touch are left out
_STYLE = """
svg{color-scheme:light dark;--bg:#fff;--ink:#1c2024;--dim:#60646c;--line:#e0e3e8;--held:#0a6b68;--waited:#b4440a}
@media (prefers-color-scheme:dark){svg{--bg:#14171a;--ink:#e6e8eb;--dim:#9ba1a8;--line:#2c3137;--held:#5cc0b8;--waited:#ff9e4a}}
text{font:12px system-ui,-apple-system,"Segoe UI","Liberation Sans",sans-serif;fill:var(--dim);font-variant-numeric:tabular-nums}
.title{font-size:15px;font-weight:600;fill:var(--ink)}.held{fill:var(--held)}.waited{fill:var(--waited)}
.grid{stroke:var(--line)}path{stroke-width:2}path.held{stroke:var(--held)}path.waited{stroke:var(--waited);stroke-dasharray:6 4}
.mark{stroke:var(--ink);stroke-dasharray:2 3}
"""


def drawing(answer: dict[str, Any]) -> str:
    """The idle windows are spaced by their logarithm; a resident model stands at the right end.

    One curve is a whole line with discs, the other broken with squares, so that no colour is needed.
    """
    rows = answer["rows"]
    windows = [row["idle_after_s"] for row in rows if row["idle_after_s"] is not None]
    low, high = log(min(windows)), log(max(windows))
    inner = WIDTH - LEFT - RIGHT
    places = [LEFT + inner * 0.92 * ((log(w) - low) / (high - low) if high > low else 0.5) for w in windows] + [
        WIDTH - RIGHT
    ]
    held = [row["share_hours_per_day"] for row in rows]
    waited = [row["waited_s_per_day"] for row in rows]
    tops = (_round_up(max(held)), _round_up(max((w for w in waited if w is not None), default=0.0)))
    chosen = (answer["recommended"] or {}).get("idle_after_s")
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}' role='img' aria-label='{_text(answer['reason'])}'>",
        f"<style>{_STYLE}</style><rect width='100%' height='100%' fill='var(--bg)'/>",
        f"<text class='title' x='16' y='26'>How long {_text(answer['model'])} should stay up</text>",
        f"<text x='16' y='46'>{answer['requests']} requests until {_text(answer['until'][:16])}Z, by the day</text>",
        f"<text class='held' x='{LEFT}' y='{TOP - 6}'>● share-hours held</text>",
        f"<text class='waited' x='{WIDTH - RIGHT}' y='{TOP - 6}' text-anchor='end'>■ seconds waited</text>",
    ]
    for step in range(5):
        y = _y(step / 4, 1.0)
        parts.append(f"<line class='grid' x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{y:.1f}' y2='{y:.1f}'/>")
        parts.append(
            f"<text class='held' x='{LEFT - 8}' y='{y + 4:.1f}' text-anchor='end'>{tops[0] * step / 4:g}</text>"
        )
        parts.append(f"<text class='waited' x='{WIDTH - RIGHT + 8}' y='{y + 4:.1f}'>{tops[1] * step / 4:g}</text>")
    parts += _axis(rows, places, chosen)
    parts.append(_curve(places, held, tops[0], "held"))
    parts.append(_curve(places, waited, tops[1], "waited"))
    return "\n".join(parts) + "\n</svg>\n"


def _axis(rows: list[dict[str, Any]], places: list[float], chosen: float | None) -> list[str]:
    parts, last = [], -1e9
    bottom = HEIGHT - BOTTOM
    for row, x in zip(rows, places, strict=True):
        resident = row["idle_after_s"] is None
        if row["idle_after_s"] == chosen and not resident:
            parts.append(f"<line class='mark' x1='{x:.1f}' x2='{x:.1f}' y1='{TOP}' y2='{bottom}'/>")
            anchor = "start" if x < WIDTH / 4 else "middle"  # longer than the margin beside the first one is wide
            parts.append(
                f"<text class='title' x='{x:.1f}' y='{bottom + 40}' text-anchor='{anchor}'>{row['idle_after']} recommended</text>"
            )
        elif row["now"]:
            parts.append(f"<line class='grid' x1='{x:.1f}' x2='{x:.1f}' y1='{TOP}' y2='{bottom + 46}'/>")
            parts.append(f"<text x='{x:.1f}' y='{bottom + 60}' text-anchor='middle'>{row['idle_after']} now</text>")
        if resident or (x - last >= LABEL_GAP and places[-1] - x >= 1.2 * LABEL_GAP):
            parts.append(f"<text x='{x:.1f}' y='{bottom + 20}' text-anchor='middle'>{row['idle_after']}</text>")
            last = x
    return parts


def _curve(places: list[float], values: list[float | None], top: float, name: str) -> str:
    points = [(x, _y(value, top)) for x, value in zip(places, values, strict=True) if value is not None]
    path = " ".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(points))
    dots = "".join(
        f"<circle class='{name}' cx='{x:.1f}' cy='{y:.1f}' r='4'/>" if name == "held"
        else f"<rect class='{name}' x='{x - 3.5:.1f}' y='{y - 3.5:.1f}' width='7' height='7'/>"
        for x, y in points
    )  # fmt: skip
    return f"<path class='{name}' style='fill:none' d='{path}'/>{dots}"


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value / top if top else 0.0))


def _round_up(value: float) -> float:
    """The next number (times ten to some power) whose quarters are round."""
    if value <= 0:
        return 1.0
    size = 10.0 ** int(log(value, 10) // 1)
    return next(step * size for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10, 12) if step * size >= value * 0.9999)


def _text(value: object) -> str:
    return escape(plain(value), quote=True)
