"""Who waited, and who waits now."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from tenure.engine.expectation import quantile

from .facts import KEPT_OUT, Facts, Wait, seconds

__all__ = ["pending", "waiting"]

NAMED = 12  # groups that wait


def pending(facts: Facts, waits: Sequence[Wait]) -> list[dict[str, Any]]:
    """Per cluster queue.  A job's pending time is all its waiting, also after a preemption."""
    by_job: dict[str, int] = defaultdict(int)
    still: Counter[str] = Counter()
    longest: dict[str, int] = defaultdict(int)
    kept_out: Counter[str] = Counter()
    queue_of: dict[str, str] = {}
    for w in waits:
        queue = queue_of[w.row.id] = w.row.cluster_queue or "(no queue)"
        if w.end is None and w.row.reason in KEPT_OUT:
            kept_out[queue] += 1
            continue
        by_job[w.row.id] += (w.end if w.end is not None else facts.now) - w.begin
        if w.end is None:
            still[queue] += 1
            longest[queue] = max(longest[queue], facts.now - w.begin)
    times: dict[str, list[int]] = {name: [] for name in facts.policy.cluster_queues}
    for job, us in by_job.items():
        times.setdefault(queue_of[job], []).append(us)
    shown = []
    for name, spent in times.items():
        spent.sort()
        shown.append(
            {
                "queue": name,
                "jobs": len(spent),
                "pending_p50_s": seconds(quantile(spent, 0.5)) if spent else None,
                "pending_p90_s": seconds(quantile(spent, 0.9)) if spent else None,
                "pending_max_s": seconds(spent[-1]) if spent else None,
                "waiting_now": still[name],
                "longest_now_s": seconds(longest[name]) if still[name] else None,
                "kept_out_now": kept_out[name],
            }
        )
    return shown


def waiting(facts: Facts, waits: Sequence[Wait]) -> list[dict[str, Any]]:
    """Who waits now for want of quota or place, by queue, project and owner; the longest first, with its reason."""
    groups: dict[tuple[str, str, str], list[Wait]] = defaultdict(list)
    for w in waits:
        if w.end is None and w.row.reason not in KEPT_OUT:
            groups[w.row.cluster_queue or "(no queue)", w.row.project, w.row.owner].append(w)
    shown = []
    for (queue, project, owner), group in groups.items():
        first = min(group, key=lambda w: (w.begin, w.row.seq))
        shares = sum(facts.spec_of(w.row).shares * facts.spec_of(w.row).processes for w in group)
        memory = sum(facts.spec_of(w.row).gpu_memory * facts.spec_of(w.row).processes for w in group)
        shown.append(
            {
                "queue": queue,
                "project": project,
                "owner": owner,
                "jobs": len(group),
                "shares": shares,
                "memory": memory,
                "longest_s": seconds(facts.now - first.begin),
                "job": first.row.id,
                "reason": first.row.reason,
                "message": first.row.message,
                "reasons": dict(Counter(w.row.reason for w in group).most_common()),
            }
        )
    shown.sort(key=lambda g: (-float(str(g["longest_s"])), str(g["queue"]), str(g["project"]), str(g["owner"])))
    return shown[:NAMED]
