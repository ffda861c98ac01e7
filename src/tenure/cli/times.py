"""Durations and moments that the command line itself needs; those of a job are read by the platform."""

from __future__ import annotations

import os

from .grammar import Usage

__all__ = ["moment_here", "seconds_of"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(text: str, *, flag: str) -> float:
    """`90`, `90s`, `2m`, `1h30m`, `HH:MM:SS`: seconds.  A bare number is seconds.  Raises Usage naming the flag."""
    try:
        if ":" in text:
            total = 0.0
            for part in text.split(":"):
                total = total * 60 + int(part)
            return total
        if text.replace(".", "", 1).isdecimal():
            return float(text)
        total, digits = 0.0, ""
        for letter in text.replace(" ", ""):
            if letter.isdecimal() or letter == ".":
                digits += letter
            else:
                total, digits = total + float(digits) * _UNITS[letter], ""
        if digits or not text:
            raise ValueError
        return total
    except (ValueError, KeyError):
        raise Usage(f"{flag} {text!r} is not a duration; write 90, 90s, 10m, 1h30m or HH:MM:SS") from None


def moment_here(text: str) -> str:
    """A time of day in the zone that TZ names, as RFC 3339: the platform knows the machine's zone and not the caller's.

    Anything else is as it was, also what is no time: the platform says so in its own words.
    """
    if not os.environ.get("TZ") or text.strip().lower().startswith("now"):
        return text
    import time
    from datetime import UTC, datetime

    from tenure.domain.ids import Instant
    from tenure.manifests.instants import parse_instant

    try:
        at = parse_instant(text, Instant(time.time_ns() // 1000))
        return datetime.fromtimestamp(at // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return text
