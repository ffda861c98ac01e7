"""Ollama's `keep_alive` in a request's body: how long the model stays up after it, from this request on.

A number is seconds, a string a duration (`5m`, `1h30m`, `300ms`) or a number; below zero is for ever, and 0 is: sleep as
soon as nothing is in flight.
"""

from __future__ import annotations

import math
import re

from .answers import Refused

__all__ = ["FOR_EVER", "keep_alive_s"]

FOR_EVER = -1.0
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)"
_WHOLE = re.compile(rf"[+-]?(?:{_PART})+")


def keep_alive_s(said: object) -> float | None:
    """Seconds, FOR_EVER, or None where nothing was said.  Raises 400."""
    if said is None:
        return None
    if isinstance(said, int | float) and not isinstance(said, bool) and math.isfinite(said):
        return float(said) if said >= 0 else FOR_EVER
    if isinstance(said, str):
        text = said.strip()
        try:
            return keep_alive_s(float(text))
        except ValueError:
            pass
        if _WHOLE.fullmatch(text):
            if text.startswith("-"):
                return FOR_EVER
            return sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, text))
    raise Refused(
        400, "invalid_keep_alive", f"{said!r} is no time to keep a model; write 300, '5m', -1 for ever or 0", param="keep_alive"
    )  # fmt: skip
