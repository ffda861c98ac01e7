"""How many wait and how many hold, by queue and reason: one pass over the workloads, and no verdict is made anew."""

from __future__ import annotations

from tenure.domain.explanation import Standing
from tenure.domain.ids import Instant
from tenure.domain.reasons import PendingReason

from .world import World

__all__ = ["standings"]


def standings(world: World) -> tuple[Standing, ...]:
    """In no promised order.

    A workload that was never looked at has the reason of its equals where they failed, and otherwise waits to be
    evaluated.  Whoever backs off, and everybody in a queue that takes nobody, is inadmissible; one that no cluster
    queue takes is aside.
    """
    counted: dict[tuple[str, str, str, str, str], list[int]] = {}
    for item in world.items.values():
        w, queue = item.workload, item.queue
        reason = ""
        if item.admission is not None:
            name, place = item.admission.cluster_queue, "holds"
        elif queue is None:
            local = world.policy.local_queues.get((w.namespace, w.queue))
            name, place = local.cluster_queue if local is not None else "", "aside"
        else:
            active = item.pile is not None and item.pile.active and queue.barrier is None
            name, place = queue.spec.name, "active" if active else "inadmissible"
        if place != "holds":
            pend = item.status
            if pend is None and queue is not None:
                pend = queue.pending.failed.get(item.form)
            reason = pend.reason if pend is not None else PendingReason.PENDING_EVALUATION
        key = (w.namespace, w.queue, name, place, reason)
        found = counted.get(key)
        if found is None:
            counted[key] = [1, w.created_at]
        else:
            found[0] += 1
            if w.created_at < found[1]:  # noqa: PLR1730  (min() would be a call for each of ten thousand)
                found[1] = w.created_at
    return tuple(
        Standing(
            namespace=key[0],
            queue=key[1],
            cluster_queue=key[2],
            place=key[3],
            reason=key[4],
            count=n,
            oldest=Instant(at),
        )
        for key, (n, at) in counted.items()
    )
