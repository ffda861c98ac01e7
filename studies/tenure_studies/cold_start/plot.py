"""The picture: a bar for each arm, its phases end to end, and a point for each wake.  SVG, written by hand.

A plotting library would be this study's only dependency, and a hundred times its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from .phases import PHASES

__all__ = ["svg"]

COLOURS = ("#999999", "#56b4e9", "#0072b2", "#009e73", "#d55e00", "#f0e442", "#e69f00", "#cc79a7")  # Okabe and Ito's
WIDTH, LEFT, RIGHT, TOP, BAR, POINTS, GAP = 960, 150, 40, 64, 44, 34, 26
ARMS = (("kept, first", "kept", True), ("kept", "kept", False), ("fresh", "fresh", False))
STEPS = (1, 2, 5)


def svg(wakes: Sequence[Mapping[str, Any]]) -> str:
    """One picture of all wakes that count.  A bar is as long as the mean wait; each of its parts is a phase's mean."""
    rows = [
        (label, [wake for wake in wakes if wake["discarded"] is None and _is(wake, arm, first)])
        for label, arm, first in ARMS
    ]
    longest = max((wake["total_s"] for _, some in rows for wake in some), default=1.0)
    step = _step(longest)
    scale = (WIDTH - LEFT - RIGHT) / longest
    bottom = TOP + len(rows) * (BAR + POINTS + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 104}" font-family="sans-serif" font-size="14">',
        f'<rect width="{WIDTH}" height="{bottom + 104}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="26" font-size="18">A cold caller\'s wait for the first token</text>',
        f'<text x="{LEFT}" y="46" fill="#555555">bars: mean of each phase; points: each wake</text>',
    ]
    for number in range(int(longest / step + 1e-9) + 1):
        x = LEFT + number * step * scale
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{number * step:g} s</text>')
    for place, (label, some) in enumerate(rows):
        parts += _row(label, some, TOP + place * (BAR + POINTS + GAP), scale)
    for place, name in enumerate((*PHASES, "not told")):
        x, y = LEFT + place % 5 * 160, bottom + 44 + place // 5 * 26
        colour = COLOURS[place] if place < len(COLOURS) else "#ffffff"
        parts.append(f'<rect x="{x}" y="{y}" width="14" height="14" fill="{colour}" stroke="#555555"/>')
        parts.append(f'<text x="{x + 20}" y="{y + 12}">{name.replace("_", " ")}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _row(label: str, some: Sequence[Mapping[str, Any]], top: float, scale: float) -> list[str]:
    parts = [f'<text x="{LEFT - 12}" y="{top + BAR / 2 + 5}" text-anchor="end">{escape(label)} (n={len(some)})</text>']
    if not some:
        return parts
    x = float(LEFT)
    means = {name: sum(wake["phases"][name] or 0.0 for wake in some) / len(some) for name in PHASES}
    rest = sum(wake["total_s"] for wake in some) / len(some) - sum(means.values())
    for (name, seconds), colour in zip(
        [*means.items(), ("not told", max(rest, 0.0))], (*COLOURS, "#ffffff"), strict=True
    ):
        if (width := seconds * scale) > 0.05:
            said = f"{name.replace('_', ' ')}: {seconds:.3f} s"
            parts.append(
                f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{BAR}" fill="{colour}" stroke="#555555" stroke-width="0.5">'
                f"<title>{said}</title></rect>"
            )
            x += width
    for place, wake in enumerate(some):
        x = LEFT + wake["total_s"] * scale
        y = top + BAR + 7 + place % 4 * 7  # four rows, so that they do not cover each other
        said = f"{wake['arm']} {wake['number']}: {wake['total_s']:.3f} s"
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="none" stroke="#222222"><title>{said}</title></circle>'
        )
    return parts


def _is(wake: Mapping[str, Any], arm: str, first: bool) -> bool:
    return wake["arm"] == arm and (wake["number"] == 0) is first


def _step(longest: float) -> float:
    """Between two lines of the grid: 1, 2 or 5 times a power of ten, for at most ten of them."""
    power = 0.001
    while True:
        for times in STEPS:
            if longest / (times * power) <= 10:
                return times * power
        power *= 10
