"""The directory that TENURE_CHECKPOINT_DIR names: it is there from the first instant, and holds what came before.

Attempts of one job follow one another, so they share the first one's directory (a relative link).  A job that retries
another starts from links to its files instead: two retries of one job may run side by side, and must not write into each
other's directory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

__all__ = ["open_checkpoints"]

NAME = "checkpoints"


def open_checkpoints(run_dir: Path, before: str | None, *, same_job: bool) -> None:
    """Make `run_dir/checkpoints`.  What is there already stays: starting twice starts once.  Raises OSError."""
    mine = run_dir / NAME
    if os.path.lexists(mine):
        return
    theirs = Path(before, NAME) if before is not None else None
    if theirs is None or not theirs.is_dir():
        mine.mkdir(exist_ok=True)
    elif same_job:
        # The end of the chain, never a link to a link: a job may be interrupted a thousand times.
        target = os.readlink(theirs) if theirs.is_symlink() else os.path.relpath(theirs, run_dir)
        mine.symlink_to(target)
    else:
        fresh = run_dir / f".{NAME}.new"
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(theirs, fresh, copy_function=_link_or_copy)
        fresh.rename(mine)


def _link_or_copy(source: str, target: str) -> None:
    with contextlib.suppress(OSError):
        os.link(source, target)
        return
    shutil.copy2(source, target)
