"""What the files of a run directory and the lock say of its attempt, for a daemon that was not there."""

from __future__ import annotations

import os

from .facts import Facts, fold
from .journal import read_lines
from .layout import JOURNAL, LOCK
from .locks import is_locked

__all__ = ["look"]


def look(run_dir: str) -> tuple[Facts, bool]:
    """The facts, and whether somebody watches over the attempt.  Raises OSError where that cannot be told.

    Not ended and nobody there: lost.  Absent and nobody there: never started.
    """
    facts = fold(read_lines(os.path.join(run_dir, JOURNAL)))
    if facts.ended:
        return facts, False
    if is_locked(os.path.join(run_dir, LOCK)):
        return facts, True
    return fold(read_lines(os.path.join(run_dir, JOURNAL))), False  # again: it may have written its end in between
