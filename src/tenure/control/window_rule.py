"""What a window means for a job: inside it, left alone, waited for, or in its way.  docs/windows.md says it in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tenure.domain.errors import InvalidRequest
from tenure.domain.job import JobSpec
from tenure.domain.policy import Policy
from tenure.domain.workload import Card
from tenure.ledger import WindowRow

from .live import Live
from .model_jobs import is_resident, model_of

__all__ = ["DEFAULT_US", "Rule", "fits", "for_window", "limit_us", "uses_card"]

DEFAULT_US = 2 * 3600 * 1_000_000
ON_DEMAND, TRAINING, RESIDENT = "on-demand", "training", "always-on"


class Rule:
    """What a window means for a job, under one policy."""

    def __init__(self, policy: Policy) -> None:
        classes = policy.workload_priority_classes
        self._training = classes[TRAINING].value if TRAINING in classes else None
        self._resident = classes[RESIDENT].value if RESIDENT in classes else None

    def inside(self, live: Live, window: WindowRow) -> bool:
        """It runs in the window: the job that it was claimed for, or else whatever its owner has but on-demand work."""
        if window.job_id is not None:
            return live.id == window.job_id
        on_demand = live.priority_class == ON_DEMAND or model_of(live) is not None
        return live.spec.owner == window.owner and not on_demand and not live.spec.window

    def untouched(self, live: Live, window: WindowRow) -> bool:
        """It may stay and start as if there were no window: inside it, or resident."""
        return (self.resident(live) and not window.including_resident) or self.inside(live, window)

    def resident(self, live: Live) -> bool:
        return self.is_always_on(live.priority) or is_resident(live)

    def is_always_on(self, priority: int) -> bool:
        return self._resident is not None and priority >= self._resident

    def spared(self, live: Live) -> bool:
        """Training: where it runs already, the window waits for its end.  Whatever else is in the way has to leave."""
        training = self._training is not None and live.priority >= self._training
        return training and not self.resident(live) and model_of(live) is None


def uses_card(live: Live) -> bool:
    return bool(live.spec.shares or live.spec.whole or live.spec.gpu_memory)


def fits(spec: JobSpec, card: Card) -> bool:
    """All of its processes on this one card, if it were empty."""
    if spec.whole:
        return spec.processes == 1 and spec.gpu_memory <= card.memory
    return spec.shares * spec.processes <= card.shares and spec.gpu_memory * spec.processes <= card.memory


def limit_us(live: Live) -> int | None:
    limits = [limit for limit in (live.spec.time_limit_s, live.spec.active_deadline_s) if limit]
    return int(min(limits) * 1e6) if limits else None


def for_window(spec: JobSpec, cards: Sequence[Card]) -> JobSpec:
    """A job that brings a window of its own, with a note where its length was not said.  Raises InvalidRequest."""
    if not any(fits(spec, card) for card in cards):
        what = "there is no card to claim" if not cards else "no one card has room for all of its processes"
        raise InvalidRequest(f"window: {what}, and a window is one whole card; leave it out", field="window")
    if spec.time_limit_s:
        return spec
    note = "its window lasts two hours at most, and it runs on without one; give a time limit to say how long"
    return replace(spec, notes=(*spec.notes, note))
