"""Spans of time as people write them, in seconds.

Three grammars: Slurm's (`90` is minutes, `MM:SS`, `HH:MM:SS`, `D-HH[:MM[:SS]]`), words with units (`2h30m`, `90s`,
`7d`), and Go's durations in Kueue's Configuration (`5m0s`).  Every refusal says what would work.
"""

from __future__ import annotations

import re
from decimal import Decimal

__all__ = ["format_duration", "parse_duration", "parse_go_duration", "parse_slurm_time"]

_UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_LONG = {
    "week": "w", "weeks": "w", "day": "d", "days": "d", "hour": "h", "hours": "h", "hr": "h", "hrs": "h",
    "minute": "m", "minutes": "m", "min": "m", "mins": "m", "second": "s", "seconds": "s", "sec": "s", "secs": "s",
}  # fmt: skip
_WORD = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", re.ASCII)
_SLURM = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_GO = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|m|s|us|µs|ns)", re.ASCII)
_GO_UNITS = {
    "h": Decimal(3600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "µs": Decimal("1e-6"), "ns": Decimal("1e-9"),
}  # fmt: skip
MAX_SECONDS = 100 * 365 * 86_400
"""A hundred years: more is a slip of the finger."""


def parse_slurm_time(text: str) -> float | None:
    """Slurm's `--time`: seconds, or None where it says no limit (`0`, `UNLIMITED`, `INFINITE`).  Raises ValueError."""
    raw = text.strip()
    if raw.upper() in {"UNLIMITED", "INFINITE"}:
        return None
    match = _SLURM.fullmatch(raw)
    if match is None or len(raw) > 30:
        raise ValueError(f"{raw[:40]!r} is not a time; write minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS")
    days, *rest = match.groups()
    parts = [int(p) for p in rest if p is not None]
    if days is not None:  # after the days come hours
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:  # minutes first
        hours, minutes, seconds = 0, parts[0], (parts[1] if len(parts) == 2 else 0)
    total = int(days or 0) * 86_400 + hours * 3_600 + minutes * 60 + seconds
    return _bounded(float(total), raw) or None


def parse_duration(text: str) -> float | None:
    """Seconds from `2h30m`, `90s`, `7d`, `1.5h`, or any of Slurm's forms (a bare number is **minutes**).

    None where it says no limit.  Raises ValueError with what would work.
    """
    raw = text.strip()
    if _SLURM.fullmatch(raw) or raw.upper() in {"UNLIMITED", "INFINITE"}:
        return parse_slurm_time(raw)
    total, at = Decimal(0), 0
    seen: set[str] = set()
    while at < len(raw) <= 60:
        match = _WORD.match(raw, at)
        unit = _LONG.get(match[2].lower(), match[2].lower()) if match else ""
        if match is None or unit not in _UNITS or unit in seen:
            break
        seen.add(unit)
        total += Decimal(match[1]) * _UNITS[unit]
        at = match.end()
    if not raw or at < len(raw):
        raise ValueError(f"{raw[:40]!r} is not a time; write 90s, 30m, 2h30m, 7d, HH:MM:SS, or a number of minutes")
    return _bounded(float(total), raw)


def parse_go_duration(text: str) -> float:
    """Seconds from Go's spelling (`5m0s`, `1h30m`, `300ms`).  Raises ValueError."""
    raw = text.strip()
    total, at = Decimal(0), 0
    while at < len(raw) <= 60:
        match = _GO.match(raw, at)
        if match is None:
            break
        total += Decimal(match[1]) * _GO_UNITS[match[2]]
        at = match.end()
    if raw == "0":
        return 0.0
    if not raw or at < len(raw):
        raise ValueError(f"{raw[:40]!r} is not a duration; write 30s, 5m or 1h30m")
    return _bounded(float(total), raw)


def format_duration(seconds: float) -> str:
    """The spelling that both Go and `parse_duration` read, exact: `90s`, `0.5s`."""
    return f"{Decimal(repr(seconds)):f}".removesuffix(".0") + "s"


def _bounded(seconds: float, raw: str) -> float:
    if seconds > MAX_SECONDS:
        raise ValueError(
            f"{raw[:40]!r} is more than a hundred years; write a shorter time, or leave it out for no limit"
        )
    return seconds
