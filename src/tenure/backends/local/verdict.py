"""How an attempt ended, as a pure decision over what happened to it.  Rules, first that holds:

0. a stop came too late to hinder the run from closing its record as completed: `completed`;
1. somebody marked a cancel that took effect: `cancelled`;
2. the time limit was the first stop that took effect: `failed`, reason TimeLimit, exit code 124;
3. another stop took effect: `interrupted`;
4. a process failed: `failed`, with its exit code, or 128+N for signal N;
5. the run's own word, where it closed its record; else `completed`.

A stop takes effect when it was signalled while the attempt still had something to do.
"""

from __future__ import annotations

import signal as signals
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Exit", "Verdict", "decide", "signal_name"]

TIME_LIMIT_EXIT = 124


class Exit(NamedTuple):
    """How one process of the attempt left.  `code` is its own, or 128+N with `signal` N."""

    rank: int
    code: int
    signal: int | None = None

    @property
    def failed(self) -> bool:
        return self.code != 0


class Verdict(NamedTuple):
    outcome: str
    exit_code: int | None
    signal: int | None = None
    reason: str = ""
    message: str = ""
    failed_rank: int | None = None


def signal_name(number: int) -> str:
    """`SIGTERM`, or `signal 99` for one without a name."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _told(exit_: Exit) -> str:
    if exit_.signal is not None:
        return f"was ended by {signal_name(exit_.signal)}"
    return f"exited with code {exit_.code}"


def decide(
    *,
    main: Exit | None,
    failure: Exit | None,
    stops: Sequence[Mapping[str, Any]],
    closed: Mapping[str, Any] | None,
    size: int,
    kind: str = "gang",
    time_limit_s: float | None = None,
) -> Verdict:
    """`main` is the exit that speaks for the attempt (rank 0's), `failure` the one that ended it, `stops` those that took
    effect, `closed` the run's own last line if it wrote one, `size` how many processes it had."""
    spoken = failure or main
    code, number = (spoken.code, spoken.signal) if spoken else (None, None)
    own = str(closed.get("outcome", "")) if closed else ""
    if stops:
        first = stops[0]
        cancel = next((stop for stop in stops if stop["stop"] == "cancel"), None)
        if own == "completed" and failure is None:
            return Verdict("completed", code, number, message="completed while a stop was on its way")
        if cancel is not None:
            return Verdict("cancelled", code, number, str(cancel.get("reason", "")), str(cancel.get("message", "")))
        if first["stop"] == "time-limit":
            limit = f" of {time_limit_s:g} s" if time_limit_s is not None else ""
            return Verdict("failed", TIME_LIMIT_EXIT, number, "TimeLimit", f"ran into its time limit{limit}")
        return Verdict("interrupted", code, number, str(first.get("reason", "")), str(first.get("message", "")))
    if failure is not None:
        if kind == "each":
            text = f"index {failure.rank} {_told(failure)}, and no retry was left"
            return Verdict("failed", code, number, "BackoffLimitExceeded", text, failure.rank)
        if size > 1:
            text = f"rank {failure.rank} {_told(failure)}; the others of {size} were ended"
            return Verdict("failed", code, number, "GangMemberFailed", text, failure.rank)
        if own == "interrupted":
            return Verdict("interrupted", code, number, str(closed.get("reason", "")) if closed else "", _told(failure))
        return Verdict("failed", code, number, "", _told(failure))
    if own in ("failed", "cancelled", "interrupted") and closed is not None:
        return Verdict(own, code, number, str(closed.get("reason", "")), str(closed.get("message", "")))
    return Verdict("completed", code, number)
