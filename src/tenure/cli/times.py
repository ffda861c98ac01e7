"""Durations and moments that the command line itself needs; those of a job are read by the platform."""

from __future__ import annotations

from .grammar import Usage

__all__ = ["seconds_of"]

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
