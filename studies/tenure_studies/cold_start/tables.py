"""What was measured, as text: a line of CSV for each wake, and a table for people."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from .phases import PHASES

__all__ = ["csv_of", "text_of"]

WAITS = ("head", "first_byte", "total", "end", "warm_first_token")
ROWS = (*PHASES, "total", "first_byte", "warm_first_token")


def csv_of(wakes: Sequence[Mapping[str, Any]]) -> str:
    """Seconds; an empty field is what nobody told."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["arm", "number", "model", "asked_at", *(f"{name}_s" for name in (*PHASES, *WAITS)), "discarded"])
    for wake in wakes:
        seconds = [*(wake["phases"][name] for name in PHASES), *(wake[f"{name}_s"] for name in WAITS)]
        writer.writerow(
            [wake["arm"], wake["number"], wake["model"], f"{wake['asked_at']:.6f}"]
            + ["" if value is None else f"{value:.6f}" for value in seconds]
            + [wake["discarded"] or ""]
        )
    return text.getvalue()


def text_of(found: Mapping[str, Any]) -> str:
    """The table, in Markdown: seconds, `-` for what is not known."""
    head = "| phase | kept p50 | p90 | min-max | fresh p50 | p90 | min-max | fresh - kept (95 %) | kept, first |"
    lines = [head, "|" + "---|" * 9]
    for name in ROWS:
        kept, fresh, apart = (found[part][name] for part in ("kept", "fresh", "difference"))
        between = "-" if apart is None else f"{apart['median']:+.3f} ({apart['low']:+.3f} to {apart['high']:+.3f})"
        cells = [*_cells(kept), *_cells(fresh), between, _number(found["kept_first"][name])]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    counts = {arm: (found[arm]["total"] or {"n": 0})["n"] for arm in ("kept", "fresh")}
    lines += ["", f"Wakes: {counts['kept']} kept, {counts['fresh']} fresh; discarded: {found['discarded'] or 'none'}."]
    if found["servers_tell_phases"] is False:
        lines.append("Not every server told its phases (GET /phases): those it did not tell are unknown.")
    if found["disbelieved"]:
        lines.append(f"Moments that could not be true, and count as not told: {', '.join(found['disbelieved'])}.")
    return "\n".join(lines) + "\n"


def _cells(one: Mapping[str, float] | None) -> list[str]:
    if one is None:
        return ["-", "-", "-"]
    return [_number(one["p50"]), _number(one["p90"]), f"{one['min']:.3f}-{one['max']:.3f}"]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
