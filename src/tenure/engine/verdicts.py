"""Verdicts on workloads that no cycle has looked at: judged now, as if it were their turn.

Equal forms in one queue share a verdict until something changes, so that a long queue costs as many as it has forms.
"""

from __future__ import annotations

from tenure.domain.plan import Pend
from tenure.domain.reasons import PendingReason

from .flavors import Assignment, Mode
from .forms import Form
from .items import Item
from .nomination import nominate
from .preemption import Oracle
from .queues import Queue
from .victims import Target
from .world import World

__all__ = ["Verdicts", "judge"]


def judge(world: World, item: Item, oracle: Oracle) -> tuple[Assignment, list[Target]]:
    """What the workload could get now, over all flavors.  Changes nothing."""
    assert item.queue is not None
    scan, item.scan = item.scan, None
    try:
        return nominate(world, item.queue, item, oracle)
    finally:
        item.scan = scan


class Verdicts:
    def __init__(self, world: World) -> None:
        self._world = world
        self._version = -1
        self._known: dict[tuple[Form, Queue], Pend] = {}

    def get(self, item: Item, oracle: Oracle) -> Pend:
        """For a pending workload in a queue."""
        if self._version != self._world.version:
            self._known.clear()
            self._version = self._world.version
        assert item.queue is not None
        key = (item.form, item.queue)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _verdict(item, *judge(self._world, item, oracle))
        return known


def _verdict(item: Item, a: Assignment, targets: list[Target]) -> Pend:
    if a.mode is Mode.NO_FIT:
        reason = PendingReason(a.no_fit_reason or PendingReason.PENDING)
        return Pend(key=item.key, reason=reason, message=a.message)
    if a.mode is Mode.FIT:
        text = "waits for its turn; there is quota for it now"
        return Pend(key=item.key, reason=PendingReason.PENDING_EVALUATION, message=text)
    if targets:
        text = f"waits for its turn; it would then preempt {len(targets)} workload(s)"
        return Pend(key=item.key, reason=PendingReason.PENDING_EVALUATION, message=text)
    return Pend(key=item.key, reason=PendingReason.WAITING_FOR_QUOTA, message=a.message)
