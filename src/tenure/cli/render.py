"""How answers look: columns for people, JSON and YAML for programs, ids for scripts.

What users wrote (names, messages) is shown with control characters escaped, so that no name can draw on a terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

__all__ = ["age", "code_of", "emit", "moment", "note", "paint", "plain", "room", "span", "table"]

WIDEST = 32  # columns of a cell on a terminal; a time has 27
LONG = 20  # items of a list; a longer one is written with a line for each
_CODES = {"queued": "PD", "admitted": "CF", "running": "R", "evicting": "CG", "cancelling": "CG"}
_ENDED = {"completed": "CD", "failed": "F", "cancelled": "CA", "interrupted": "PR"}
_REASONS = {
    "TimeLimit": "TO",
    "OutOfMemory": "OOM",
    "MachineRestarted": "NF",
    "SupervisorLost": "NF",
    "NodeFailures": "NF",
}
_COLOURS = {"R": "32", "CD": "2", "F": "31", "TO": "31", "OOM": "31", "NF": "31", "PD": "33", "CG": "35", "PR": "35"}


def emit(document: object, form: str) -> None:
    """A whole answer as `json` or `yaml`, UTF-8, on stdout."""
    if form == "yaml":
        import yaml

        yaml.safe_dump(document, sys.stdout, allow_unicode=True, sort_keys=False, width=120)
        return
    if isinstance(document, list) and len(document) > LONG:
        # One line each: the encoder that indents is Python's slow one, and a thousand jobs have 200 ms in all.
        lines = ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in document)
        sys.stdout.write(f"[\n  {lines}\n]\n")
        return
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")


def note(text: str) -> None:
    """One line of chatter, on stderr."""
    with contextlib.suppress(OSError):  # nobody is listening; that is no reason to fail
        print(f"tenure: {plain(text)}", file=sys.stderr, flush=True)


def plain(text: object) -> str:
    """Text on one line, its control characters escaped as Python would."""
    raw = str(text)
    if raw.isprintable():
        return raw
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in raw)


def code_of(job: Mapping[str, Any]) -> str:
    """squeue's two letters for where a job is or how it ended."""
    if job.get("state") != "ended":
        return _CODES.get(str(job.get("state")), "?")
    if job.get("outcome") == "failed" and job.get("reason") in _REASONS:
        return _REASONS[str(job["reason"])]
    return _ENDED.get(str(job.get("outcome")), "?")


def moment(text: str | None) -> datetime | None:
    """An RFC 3339 time as the wire carries it."""
    return None if not text else datetime.fromisoformat(text)


def age(since: str | None, until: str | None = None) -> str:
    """How long ago, or how long it took; never negative, for clocks do jump."""
    start = moment(since)
    if start is None:
        return "-"
    return span(((moment(until) or datetime.now(UTC)) - start).total_seconds())


def span(seconds: float) -> str:
    """`0s`, `59s`, `12m`, `3h05m`, `2d04h`."""
    s = max(0, int(seconds))
    if s < 60:
        return f"{s}s"
    if s < 3600:
        return f"{s // 60}m{s % 60:02d}s" if s < 600 else f"{s // 60}m"
    if s < 86400:
        return f"{s // 3600}h{s % 3600 // 60:02d}m"
    return f"{s // 86400}d{s % 86400 // 3600:02d}h"


def paint(text: str, colour: str | None, stream: Any = None) -> str:
    """The text in a colour, on a terminal that wants it."""
    return f"\x1b[{colour}m{text}\x1b[0m" if colour and wants_colour(stream or sys.stdout) else text


def wants_colour(stream: Any) -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and bool(stream.isatty())


def state_colour(text: str) -> str | None:
    return _COLOURS.get(text.strip())


def table(
    head: Sequence[str], rows: Sequence[Sequence[object]], *, colour: Callable[[int, str], str | None] | None = None
) -> list[str]:
    """Columns two spaces apart, the last one free.

    On a terminal the last is cut to what fits, and none of the others is wider than `WIDEST`: one long name takes no
    column off the screen.  Elsewhere nothing is cut.
    """
    columns = room()
    cells = [[plain("-" if c is None or c == "" else c) for c in row] for row in rows]
    if columns:
        cells = [[*(_cut(cell, WIDEST) for cell in row[:-1]), *row[-1:]] for row in cells]
    widths = [max([_width(h), *(_width(row[i]) for row in cells)]) for i, h in enumerate(head)]
    lines = []
    for number, row in enumerate([list(head), *cells]):
        parts = []
        for i, cell in enumerate(row):
            last = i == len(row) - 1
            shown = cell
            if last and columns:
                shown = _cut(cell, max(8, columns - sum(widths[:i]) - 2 * i))
            pad = "" if last else " " * (widths[i] - _width(shown))
            hue = colour(i, cell) if colour and number else ("1" if not number else None)
            parts.append(paint(shown, hue) + pad)
        lines.append("  ".join(parts).rstrip())
    return lines


def room() -> int:
    """Columns that a line may take on the terminal; 0 where stdout is none, and nothing is cut or wrapped."""
    return _columns() if sys.stdout.isatty() else 0


def _columns() -> int:
    """Of the terminal; COLUMNS wins, as everywhere."""
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size(sys.stdout.fileno()).columns)
    except (OSError, ValueError):
        return 80


def _width(text: str) -> int:
    """Columns that a text takes on a terminal: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _cut(text: str, room: int) -> str:
    if _width(text) <= room:
        return text
    while text and _width(text) > room - 1:
        text = text[:-1]
    return text + "…"
