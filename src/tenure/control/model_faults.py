"""What went wrong with a model's server, in words, and how long the next try is away."""

from __future__ import annotations

from tenure.domain.ids import RunId
from tenure.ledger import AttemptRow, JobRow
from tenure.telemetry.listeners import Listener

from .kept import Kept

__all__ = ["TAKEN", "backoff_s", "died", "taken", "unstarted"]

TAKEN = "PortTaken"
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 1.0, 300.0


def backoff_s(failures: int) -> float:
    """1, 2, 4 … 300 seconds after the first, second, third failure in a row."""
    return min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(failures - 1, 20))


def taken(kept: Kept, run: RunId, who: Listener) -> tuple[str, str]:
    """Reason and message: a stranger is on its port."""
    named = f"{who.command} (pid {who.pid})" if who.pid is not None else "a process that may not be looked at"
    return TAKEN, f"port {kept.port} is taken by {named}, which is no process of run {run}"


def unstarted(attempt: AttemptRow) -> tuple[str, str]:
    """Reason and message: there was no process.  A job is launched again by itself; a model, when it is asked for."""
    return attempt.reason or "LaunchFailed", f"its server could not be started: {attempt.message}"


def died(kept: Kept, row: JobRow) -> tuple[str, str]:
    """Reason and message: it ended, and nobody had asked it to."""
    how = row.message or f"exit code {row.exit_code}"
    when = "while it was loading" if kept.ready_run is None else "while it was up"
    return row.reason or "ServerEnded", f"its server ended by itself {when} ({how}); `tenure logs {row.id}`"
