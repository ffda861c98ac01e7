"""Why a model waits, and which other models have what it waits for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tenure.domain.ids import JobId, WorkloadKey

from .kept import Kept
from .live import Live
from .model_jobs import in_the_place

if TYPE_CHECKING:
    from .app import Platform

__all__ = ["why_it_waits"]

HOPELESS = frozenset({"ExceedsMaxQuota", "NoMatchingFlavor", "Misconfigured", "Deactivated", "OnHold", "Suspended"})
"""Reasons for waiting that time alone does not mend."""


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
    return str(told.reason), told.message + in_the_place(kept.model.name, others)
