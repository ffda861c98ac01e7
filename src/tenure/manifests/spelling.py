"""The nearest right name to a wrong one.  Standard library only, so that a client can afford it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean "x"?`, or the list of what is known where nothing is near."""
    names = sorted(set(known))
    lower = {n.lower(): n for n in names}
    close = difflib.get_close_matches(word.lower(), list(lower), n=1, cutoff=0.6)
    if close:
        return f'; did you mean "{lower[close[0]]}"?'
    return f"; known here: {', '.join(names)}" if names else ""
