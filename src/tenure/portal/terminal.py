"""A readable view of what a program wrote to its terminal: bounded, with progress bars settled and colours as classes.

`\\r` overwrites from the start of the line, as terminals do; of ANSI only colours and weight remain; invalid UTF-8 becomes
U+FFFD; a line that is too long is cut with a marker that says how much is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .logs import read_from, size_of

__all__ = ["Span", "Tail", "render", "tail"]

TAIL_BYTES = 256 * 1024
TAIL_LINES = 400
LINE_CHARS = 2000
_CSI = re.compile(
    r"\x1b\[([0-9;:]*)m"  # colours and weight: kept as far as they are known
    r"|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_].*?(?:\x1b\\|$)|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of text; `style` is a space-separated list of the classes `b` and `a30`…`a97`."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The last lines.  `skipped` counts the bytes before the first of them."""

    lines: tuple[tuple[Span, ...], ...]
    skipped: int
    size: int


def tail(path: Path | None) -> Tail:
    """The end of a log, in bounded time and memory whatever the file holds."""
    size = size_of(path)
    if path is None or size == 0:
        return Tail(lines=(), skipped=0, size=size)
    start = max(0, size - TAIL_BYTES)
    data = b"".join(read_from(path, start, size))
    if start and (cut := data.find(b"\n")) >= 0 and cut + 1 < len(data):
        start += cut + 1
        data = data[cut + 1 :]
    rows = data.removesuffix(b"\n").split(b"\n")
    if len(rows) > TAIL_LINES:
        start += sum(len(row) + 1 for row in rows[:-TAIL_LINES])
        rows = rows[-TAIL_LINES:]
    return Tail(lines=tuple(render(row.decode("utf-8", "replace") for row in rows)), skipped=start, size=size)


def render(lines: Iterable[str]) -> Iterable[tuple[Span, ...]]:
    """Each line as spans.  A style lasts across lines until it is reset, as on a terminal."""
    style: frozenset[str] = frozenset()
    for line in lines:
        row, style = _row(_settle(line), style)
        yield row


def _settle(line: str) -> str:
    """What a line shows after its carriage returns: the last non-empty piece, over what it did not cover."""
    line = line.rstrip("\r")
    if "\r" not in line:
        return line
    pieces = line.split("\r")
    shown = pieces[-1]
    if len(pieces) > 1 and "\x1b" not in line and len(pieces[-2]) > len(shown):
        shown += pieces[-2][len(shown) :]
    return shown


def _row(line: str, style: frozenset[str]) -> tuple[tuple[Span, ...], frozenset[str]]:
    spans: list[Span] = []
    room, at = LINE_CHARS, 0

    def put(text: str) -> None:
        nonlocal room
        if text and room > 0:
            spans.append(Span(text=text[:room], style=" ".join(sorted(style))))
        room -= len(text)

    for match in _CSI.finditer(line):
        put(line[at : match.start()])
        at = match.end()
        if match.group(1) is not None:
            style = _styled(style, match.group(1))
    put(line[at:])
    if room < 0:
        spans.append(Span(text=f" … {-room:,} more characters on this line", style="cut"))
    return tuple(spans), style


_CODE_DIGITS = 5  # no code is as long; a program may print a thousand digits, which int() does not take


def _styled(style: frozenset[str], codes: str) -> frozenset[str]:
    """The style after an SGR sequence; colours beyond the sixteen are left as they were."""
    numbers = [int(code or "0") for code in codes.replace(":", ";").split(";") if len(code) < _CODE_DIGITS]
    if not numbers:
        return style
    if numbers[0] in (38, 48):
        return style
    for number in numbers:
        colour = 30 <= number <= 37 or 90 <= number <= 97
        if number == 0:
            style = frozenset()
        elif number == 1:
            style |= {"b"}
        elif number == 22:
            style -= {"b"}
        elif colour or number == 39:
            style = frozenset(item for item in style if not item.startswith("a")) | (
                {f"a{number}"} if colour else frozenset()
            )
    return style
