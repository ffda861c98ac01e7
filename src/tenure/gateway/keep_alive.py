"""Ollama's `keep_alive` in a request's body: how long the model stays up after it, from this request on.

A number is seconds, a string one of Go's durations (`5m`, `1h30m`, `300ms`) or a number; below zero is for ever, and 0 is: sleep as
soon as nothing is in flight.  More than a hundred years is for ever, too.
"""

from __future__ import annotations

import math
import reprlib
from contextlib import suppress

from tenure.manifests.durations import parse_go_duration

from .answers import Refused

__all__ = ["FOR_EVER", "keep_alive_s"]

FOR_EVER = -1.0
LONGEST_S = 100 * 365.25 * 86_400


def keep_alive_s(said: object) -> float | None:
    """Seconds, FOR_EVER, or None where nothing was said.  Raises 400."""
    if said is None:
        return None
    if isinstance(said, int | float) and not isinstance(said, bool) and (isinstance(said, int) or math.isfinite(said)):
        return float(said) if 0 <= said <= LONGEST_S else FOR_EVER
    if isinstance(said, str):
        text = said.strip()
        with suppress(ValueError):
            return keep_alive_s(float(text))
        with suppress(ValueError):
            seconds = parse_go_duration(text[1:] if text[:1] in ("+", "-") else text)
            return FOR_EVER if text.startswith("-") else seconds
    raise Refused(
        400, "invalid_keep_alive", f"{reprlib.repr(said)} is no time to keep a model; write 300, '5m', -1 for ever or 0", param="keep_alive"
    )  # fmt: skip
