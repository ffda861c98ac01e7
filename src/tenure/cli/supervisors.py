"""Which attempts' supervisors are alive, asked of the lock that each one holds for life."""

from __future__ import annotations

import os

from tenure.settings import Settings

__all__ = ["alive"]


def alive(settings: Settings) -> list[str]:
    """The run ids whose supervisor lives; empty where no run was ever started."""
    from tenure.backends.local.locks import is_locked

    try:
        runs = sorted(os.listdir(settings.runs_dir))
    except OSError:
        return []
    found = []
    for run in runs:
        try:
            if is_locked(str(settings.runs_dir / run / "lock")):
                found.append(run)
        except OSError:
            continue
    return found
