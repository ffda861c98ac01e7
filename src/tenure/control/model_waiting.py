"""Why a model waits, and which other models have what it waits for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tenure.domain.ids import JobId, WorkloadKey
from tenure.domain.reasons import PendingReason

from .kept import Kept
from .live import Live
from .model_jobs import in_the_place

if TYPE_CHECKING:
    from .app import Platform

__all__ = ["has_left_the_line", "why_it_waits"]

TURN_S = 120.0  # whoever was told when its turn is has this long to come again

HOPELESS = frozenset({"ExceedsMaxQuota", "NoMatchingFlavor", "Misconfigured", "Deactivated", "OnHold", "Suspended"})
"""Reasons for waiting that time alone does not mend."""


def has_left_the_line(kept: Kept, live: Live | None, now: int) -> str:
    """Why it waits no longer: nobody would be there when it is up.  Empty: it waits."""
    if kept.model.resident or kept.held:
        return ""
    idle_us = now - kept.asked_us
    if live is not None and (live.attempts > 0 or live.reason == PendingReason.WAITING_FOR_WINDOW):
        lost = idle_us > kept.idle_after_s * 1e6
        return "it lost its place, and nobody has asked for it within its idle time" if lost else ""
    left = not kept.by_hand and idle_us > max(kept.idle_after_s, TURN_S) * 1e6
    return "it had no turn, and nobody has asked for it within its idle time" if left else ""


def why_it_waits(platform: Platform, kept: Kept, live: Live | None, everybody: Iterable[Kept]) -> tuple[str, str]:
    """Reason and message; `blocked_by` and `placeable` of the model are set as well."""
    with platform.conductor.lock:
        if live is None or not live.in_engine:
            return (live.reason, live.message) if live is not None else ("PendingEvaluation", "")
        told = platform.engine.explain(WorkloadKey(live.id), platform.clock.steady())
        holders = {str(holder.key) for blocker in told.blockers for holder in blocker.held_by}
        others = [one for holder in holders if (one := platform.conductor.live.get(JobId(holder)))]
    kept.blocked_by = tuple(sorted(k.model.name for k in everybody if k.job in holders and k is not kept))
    kept.placeable = str(told.reason) not in HOPELESS
    tail = in_the_place(kept.model.name, others) if kept.placeable else ""  # were they gone, it would wait all the same
    return str(told.reason), told.message + tail
