"""A window: a claim of one whole card, for a time.

`scheduled` until its time has come, `waiting` for its turn and for the card, `active` while it holds the card, `ended`.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["WINDOW_TRANSITIONS", "WindowEnd", "WindowState"]


class WindowState(StrEnum):
    SCHEDULED = "scheduled"
    WAITING = "waiting"
    ACTIVE = "active"
    ENDED = "ended"


WINDOW_TRANSITIONS: dict[WindowState, frozenset[WindowState]] = {
    WindowState.SCHEDULED: frozenset({WindowState.WAITING, WindowState.ENDED}),
    WindowState.WAITING: frozenset({WindowState.ACTIVE, WindowState.ENDED}),
    WindowState.ACTIVE: frozenset({WindowState.ENDED}),
    WindowState.ENDED: frozenset(),
}


class WindowEnd(StrEnum):
    """Why a window ended."""

    LAPSED = "Lapsed"  # its time was over
    RELEASED = "Released"  # its owner or an operator let go of it
    JOB_ENDED = "JobEnded"  # it was claimed for a job, and the job is over
    JOB_WAITS = "JobWaits"  # it was claimed for a job, and the job could not start in it
    OWNER_GONE = "OwnerGone"  # whoever claimed it was to say now and then that they are there, and did not
    CARD_GONE = "CardGone"  # the machine has no such card any more
