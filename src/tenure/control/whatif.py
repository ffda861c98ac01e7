"""What another policy would have done with the same jobs: two replays and their figures, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tenure.domain.amounts import GPU, GPU_MEMORY
from tenure.domain.errors import InvalidRequest
from tenure.domain.ids import WorkloadKey
from tenure.domain.options import EngineOptions
from tenure.domain.policy import Policy
from tenure.domain.workload import Card
from tenure.engine.expectation import quantile
from tenure.engine.lives import Arrival, Life, Replay, ReplayOptions, Resume
from tenure.engine.replay import replay

from .clock import wire
from .namings import priority_of
from .traffic import Past, Traffic
from .workloads import workload

__all__ = ["replayed", "try_policy"]

GIB = 1 << 30


def try_policy(
    *, before: Policy, after: Policy, cards: Sequence[Card], traffic: Traffic, resume: Resume = Resume.REMAINING
) -> dict[str, Any]:
    """Both replays.  What could not be played as it happened is said in `notes`."""
    notes = list(traffic.notes)
    sides: dict[str, Any] = {}
    fidelity: dict[str, Any] | None = None
    for side, policy in (("before", before), ("after", after)):
        played, missing = replayed(policy, cards, traffic, resume=resume)
        where = "the policy in force" if side == "before" else "the policy tried"
        notes += [f"{text} in {where}" for text in missing]
        if played.unsettled:
            notes.append(f"{played.unsettled} times workloads took turns without end under {where}; each was cut short")
        sides[side] = _figures(policy, played)
        if side == "before":
            fidelity = _fidelity(traffic, played)
    return {
        "source": traffic.source,
        "since": wire(traffic.since),
        "until": wire(traffic.until),
        "jobs": len(traffic.jobs),
        "resume": str(resume),
        "notes": notes,
        "fidelity": fidelity,
        **sides,
    }


def replayed(
    policy: Policy, cards: Sequence[Card], traffic: Traffic, *, resume: Resume = Resume.REMAINING
) -> tuple[Replay, list[str]]:
    """The jobs under one policy; and what of them that policy does not know, in sentences without an end."""
    missing: Counter[str] = Counter()
    arrivals = [_arrival(past, policy, cards, missing) for past in traffic.jobs]
    until = traffic.until if traffic.ends else None
    beyond = policy.engine_options or EngineOptions()
    options = ReplayOptions(until=until, resume=resume, engine=beyond)
    played = replay(policy, cards, arrivals, now=traffic.since, options=options)
    texts = [f"{n} job{'s' if n > 1 else ''} {text}" for text, n in sorted(missing.items())]
    return played, texts


def _arrival(past: Past, policy: Policy, cards: Sequence[Card], missing: Counter[str]) -> Arrival:
    spec = past.spec
    try:
        priority, _ = priority_of(policy, spec)
    except InvalidRequest:
        priority = 0
        missing[f"cannot have priority, which is taken as 0: there is no class {spec.priority_class!r}"] += 1
    queue = spec.queue or "default"
    if (spec.namespace, queue) not in policy.local_queues:
        missing[f"cannot start: there is no queue {spec.namespace}/{queue}"] += 1
    return Arrival(
        workload=workload(past.id, spec, priority=priority, created_at=past.created_at, cards=cards),
        at=past.arrived_at,
        runtime_us=past.runtime_us,
        cancelled_at=past.cancelled_at,
    )


def _figures(policy: Policy, played: Replay) -> dict[str, Any]:
    seconds = max(1, played.ended - played.began) / 1e6
    lives: dict[str, list[Life]] = {name: [] for name in policy.cluster_queues}
    for life in played.lives.values():
        lives.setdefault(life.cluster_queue or "(no queue)", []).append(life)
    queues = {name: _queue(name, group, policy, played, seconds) for name, group in lives.items()}
    return {
        "queues": queues,
        "total": _queue(None, list(played.lives.values()), policy, played, seconds),
        "seconds": round(seconds, 6),
        "admissions": played.admissions,
        "cycles": played.cycles,
    }


def _queue(name: str | None, lives: Sequence[Life], policy: Policy, played: Replay, seconds: float) -> dict[str, Any]:
    """Figures of one cluster queue; of all, for None.  Times in seconds, use in share-seconds and GiB-seconds."""
    waits = sorted(x.started - x.workload.created_at for x in lives if x.started is not None and not x.stood)
    unmet = [x for x in lives if x.started is None and not x.cancelled]
    nominal: Counter[str] = Counter()
    for queue in policy.cluster_queues.values():
        if name is None or queue.name == name:
            for group in queue.resource_groups:
                for flavor in group.flavors:
                    nominal.update({r: q.nominal for r, q in flavor.resources.items()})
    used: Counter[str] = Counter()
    for (queue_name, resource), amount in played.used.items():
        if name is None or queue_name == name:
            used[resource] += amount
    return {
        "jobs": len(lives),
        "started": len(waits),
        "wait_p50_s": _s(quantile(waits, 0.5)) if waits else None,
        "wait_p90_s": _s(quantile(waits, 0.9)) if waits else None,
        "wait_max_s": _s(waits[-1]) if waits else None,
        "preempted": sum(x.preempted for x in lives),
        "preempting": sum(x.preempting for x in lives),
        "use": {
            "share_s": round(used[GPU] / 1e6, 3),
            "gib_s": round(used[GPU_MEMORY] / 1e6 / GIB, 3),
            "shares_of_nominal": _ratio(used[GPU], nominal[GPU], seconds),
            "memory_of_nominal": _ratio(used[GPU_MEMORY], nominal[GPU_MEMORY], seconds),
        },
        "unmet": {"jobs": len(unmet), "share_s": round(sum(_shares(x) for x in unmet) / 1e6, 3)},
    }


def _shares(life: Life) -> int:
    shares = sum(p.requests.get(GPU, 0) * p.count for p in life.workload.pod_sets)
    return shares * (life.runtime_us or 0)


def _ratio(used: int, nominal: int, seconds: float) -> float | None:
    return round(used / 1e6 / (nominal * seconds), 4) if nominal else None


def _s(us: int) -> float:
    return round(us / 1e6, 3)


def _fidelity(traffic: Traffic, played: Replay) -> dict[str, Any] | None:
    """How far the replay under the policy in force is from what happened: what its other figures are worth."""
    off = []
    for past in traffic.jobs:
        life = played.lives.get(WorkloadKey(past.id))
        if past.started_at is None or past.started_at < traffic.since or life is None:
            continue
        off.append(abs((life.started if life.started is not None else played.ended) - past.started_at))
    if not off:
        return None
    off.sort()
    return {"compared": len(off), "off_p50_s": _s(quantile(off, 0.5)), "off_p90_s": _s(quantile(off, 0.9))}
