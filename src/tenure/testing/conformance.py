"""Replays scenarios whose decisions the real Kueue took, and compares every decision, message and queue place.

`python -m tenure.testing.conformance FILE.jsonl.gz ...` prints the first differences and, last, `agree N of M`.
A line of a file is `{"input": scenario, "expected": [state after each cycle]}`; objects are Kueue's v1beta2 as JSON.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tenure.domain.amounts import parse_decimal, parse_quantity
from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.policy import (
    BorrowPolicy,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    CurrencyPreference,
    FairSharing,
    Flavor,
    FlavorQuotas,
    Fungibility,
    LabelRequirement,
    LabelSelector,
    LocalQueue,
    Namespace,
    Policy,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    Quota,
    ResourceGroup,
    ShareStrategy,
    StopPolicy,
    Taint,
    Toleration,
    WhenCanBorrow,
    WhenCanPreempt,
)  # fmt: skip
from tenure.domain.workload import Admission, NodeSelectorTerm, PodSet, Workload
from tenure.engine import Engine, EngineOptions
from tenure.engine.spelling import spell

__all__ = ["Replay", "differences", "read_policy", "read_workload", "replay"]

Json = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_START = Instant(round(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000)
_SECOND = 1_000_000


# -- reading Kueue's objects ------------------------------------------------------------------------------------


def read_policy(scenario: Json) -> Policy:
    """The policy part of a scenario, with Kueue's defaults."""
    fair = scenario.get("fairSharing")
    return Policy(
        flavors={f.name: f for f in map(_flavor, scenario.get("flavors") or ())},
        cluster_queues={q.name: q for q in map(_cluster_queue, scenario.get("clusterQueues") or ())},
        cohorts={c.name: c for c in map(_cohort, scenario.get("cohorts") or ())},
        local_queues={(q.namespace, q.name): q for q in map(_local_queue, scenario.get("localQueues") or ())},
        namespaces={n.name: n for n in map(_namespace, scenario.get("namespaces") or ())},
        fair_sharing=None if fair is None else _fair_sharing(fair),
    )


def _fair_sharing(raw: Json) -> FairSharing:
    named = tuple(ShareStrategy(s) for s in raw.get("preemptionStrategies") or ())
    return FairSharing(preemption_strategies=named) if named else FairSharing()


def _name(raw: Json) -> str:
    return str(raw["metadata"]["name"])


def _namespace(raw: Json) -> Namespace:
    return Namespace(name=_name(raw), labels=dict(raw["metadata"].get("labels") or {}))


def _flavor(raw: Json) -> Flavor:
    spec = raw.get("spec") or {}
    return Flavor(
        name=_name(raw),
        node_labels=dict(spec.get("nodeLabels") or {}),
        node_taints=tuple(
            Taint(key=t["key"], value=t.get("value", ""), effect=t["effect"]) for t in spec.get("nodeTaints") or ()
        ),
        tolerations=tuple(map(_toleration, spec.get("tolerations") or ())),
    )


def _toleration(raw: Json) -> Toleration:
    return Toleration(
        key=raw.get("key", ""),
        operator=raw.get("operator") or "Equal",
        value=raw.get("value", ""),
        effect=raw.get("effect", ""),
    )


def _groups(spec: Json) -> tuple[ResourceGroup, ...]:
    return tuple(
        ResourceGroup(
            covered_resources=tuple(g["coveredResources"]),
            flavors=tuple(
                FlavorQuotas(flavor=f["name"], resources={r["name"]: _quota(r) for r in f["resources"]})
                for f in g["flavors"]
            ),
        )
        for g in spec.get("resourceGroups") or ()
    )


def _quota(raw: Json) -> Quota:
    def amount(field: str) -> int | None:
        return None if raw.get(field) is None else parse_quantity(raw[field], resource=raw["name"])

    return Quota(
        nominal=amount("nominalQuota") or 0, borrowing_limit=amount("borrowingLimit"), lending_limit=amount("lendingLimit")
    )  # fmt: skip


def _weight(spec: Json) -> float:
    weight = (spec.get("fairSharing") or {}).get("weight")
    return 1.0 if weight is None else float(parse_decimal(weight))


def _cohort(raw: Json) -> Cohort:
    spec = raw.get("spec") or {}
    return Cohort(
        name=_name(raw),
        parent=spec.get("parentName") or None,
        resource_groups=_groups(spec),
        fair_weight=_weight(spec),
    )


def _cluster_queue(raw: Json) -> ClusterQueue:
    spec = raw.get("spec") or {}
    return ClusterQueue(
        name=_name(raw),
        cohort=spec.get("cohortName") or None,
        resource_groups=_groups(spec),
        queueing_strategy=QueueingStrategy(spec.get("queueingStrategy") or "BestEffortFIFO"),
        namespace_selector=_selector(spec.get("namespaceSelector")),
        fungibility=_fungibility(spec.get("flavorFungibility") or {}),
        preemption=_preemption(spec.get("preemption") or {}),
        stop_policy=StopPolicy(spec.get("stopPolicy") or "None"),
        fair_weight=_weight(spec),
    )


def _selector(raw: Json | None) -> LabelSelector | None:
    if raw is None:
        return None
    return LabelSelector(
        match_labels=dict(raw.get("matchLabels") or {}),
        match_expressions=tuple(map(_requirement, raw.get("matchExpressions") or ())),
    )


def _requirement(raw: Json) -> LabelRequirement:
    return LabelRequirement(key=raw["key"], operator=raw["operator"], values=tuple(raw.get("values") or ()))


def _fungibility(raw: Json) -> Fungibility:
    preference = raw.get("preference")
    return Fungibility(
        when_can_borrow=WhenCanBorrow(raw.get("whenCanBorrow") or "MayStopSearch"),
        when_can_preempt=WhenCanPreempt(raw.get("whenCanPreempt") or "TryNextFlavor"),
        preference=CurrencyPreference(preference) if preference else None,
    )


def _preemption(raw: Json) -> Preemption:
    borrow = raw.get("borrowWithinCohort") or {}
    return Preemption(
        within_cluster_queue=PreemptionPolicy(raw.get("withinClusterQueue") or "Never"),
        reclaim_within_cohort=PreemptionPolicy(raw.get("reclaimWithinCohort") or "Never"),
        borrow_within_cohort=BorrowWithinCohort(
            policy=BorrowPolicy(borrow.get("policy") or "Never"),
            max_priority_threshold=borrow.get("maxPriorityThreshold"),
        ),
    )


def _local_queue(raw: Json) -> LocalQueue:
    spec = raw["spec"]
    return LocalQueue(
        name=_name(raw),
        namespace=raw["metadata"].get("namespace", "default"),
        cluster_queue=spec["clusterQueue"],
        stop_policy=StopPolicy(spec.get("stopPolicy") or "None"),
    )


def read_workload(raw: Json) -> Workload:
    """A pending Workload object.  Its key is `namespace/name`."""
    meta, spec = raw["metadata"], raw["spec"]
    namespace = meta.get("namespace", "default")
    created = datetime.fromisoformat(meta["creationTimestamp"])
    return Workload(
        key=WorkloadKey(f"{namespace}/{meta['name']}"),
        uid=meta.get("uid") or meta["name"],
        namespace=namespace,
        queue=spec["queueName"],
        pod_sets=tuple(map(_pod_set, spec["podSets"])),
        created_at=Instant((created - _EPOCH) // timedelta(microseconds=1)),
        priority=spec.get("priority") or 0,
        active=spec.get("active", True),
    )


def _pod_set(raw: Json) -> PodSet:
    spec = raw["template"]["spec"]
    requests: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for resource, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            requests[resource] = requests.get(resource, 0) + parse_quantity(amount, resource=resource)
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    return PodSet(
        name=raw.get("name") or "main",
        count=raw.get("count", 1),
        min_count=raw.get("minCount"),
        requests=requests,
        node_selector=dict(spec.get("nodeSelector") or {}),
        affinity_terms=tuple(
            NodeSelectorTerm(expressions=tuple(map(_requirement, term.get("matchExpressions") or ())))
            for term in required.get("nodeSelectorTerms") or ()
        ),
        tolerations=tuple(map(_toleration, spec.get("tolerations") or ())),
    )


# -- replaying --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Seen:
    """One workload as an API server would show it."""

    workload: Workload
    state: str = "pending"
    reason: str | None = None
    message: str | None = None
    preempted: str | None = None
    eviction: str = ""
    admission: Admission | None = None


class Replay:
    """A scenario under way: the engine, a clock, and what its users would see."""

    def __init__(self, scenario: Json) -> None:
        self.engine = Engine(read_policy(scenario), options=EngineOptions(shrink_gangs=False))
        self.now = _START
        self.seen: dict[WorkloadKey, _Seen] = {}
        for raw in scenario.get("workloads") or ():
            self.create(raw)

    def create(self, raw: Json) -> None:
        w = read_workload(raw)
        self.seen[w.key] = _Seen(w)
        self.engine.add(w)

    def step(self, step: Json) -> dict[str, Any] | None:
        """Take one step; a cycle answers with the state after it."""
        match step["op"]:
            case "cycle":
                return self.cycle()
            case "create":
                self.create(step["workload"])
            case "evictions":
                self.complete_evictions()
            case "finish":
                self.finish(WorkloadKey(step["key"]))
            case "finishNth":
                running = sorted(key for key, s in self.seen.items() if s.state == "admitted")
                if running:
                    self.finish(running[step.get("seconds", 0) % len(running)])
            case "advance":
                self.now = Instant(self.now + round(step["seconds"] * _SECOND))
            case other:
                raise ValueError(f"unknown step {other!r}; known: cycle, create, evictions, finish, finishNth, advance")
        return None

    def cycle(self) -> dict[str, Any]:
        self.now = Instant(self.now + _SECOND)
        plan = self.engine.cycle(self.now)
        for admit in plan.admits:
            s = self.seen[admit.key]
            s.state, s.admission, s.preempted, s.reason, s.message = "admitted", admit.admission, None, None, None
        for preempt in plan.preempts:
            s = self.seen[preempt.victim]
            s.state, s.preempted, s.eviction = "evicting", str(preempt.reason), preempt.message
        for pend in plan.pends:
            s = self.seen[pend.key]
            s.reason, s.message = str(pend.reason), pend.message
        return self.state([str(key) for key in plan.order])

    def complete_evictions(self) -> None:
        for key in sorted(key for key, s in self.seen.items() if s.state == "evicting"):
            s = self.seen[key]
            s.state, s.admission, s.reason, s.message = "pending", None, "Pending", s.eviction
            self.engine.released(key, at=self.now)

    def finish(self, key: WorkloadKey) -> None:
        self.seen[key].state = "finished"
        self.engine.remove(key)

    def state(self, order: list[str]) -> dict[str, Any]:
        places = self.engine.places()
        workloads = []
        for key in sorted(self.seen):
            s = self.seen[key]
            shown: dict[str, Any] = {"key": str(key), "state": s.state}
            if s.state == "pending":
                shown["queue"] = "active" if places.get(key) else "inadmissible"
                if s.reason is not None:
                    shown["reason"], shown["message"] = s.reason, s.message
            if s.preempted is not None:
                shown["preemptedReason"] = s.preempted
            if s.admission is not None:
                shown["admission"] = _admission(s.admission)
            workloads.append(shown)
        return {"order": order or None, "workloads": workloads or None}  # the corpus writes empty lists as null


def _admission(a: Admission) -> dict[str, Any]:
    return {
        "clusterQueue": a.cluster_queue,
        "podSetAssignments": [
            {
                "name": ps.name,
                "flavors": dict(sorted(ps.flavors.items())),
                "resourceUsage": {r: spell(r, n) for r, n in sorted(ps.usage.items())},
                "count": ps.count,
            }
            for ps in a.assignments
        ],
    }


def replay(scenario: Json) -> list[dict[str, Any]]:
    """The state after each cycle, in the corpus's own shape."""
    run = Replay(scenario)
    return [state for step in scenario["steps"] if (state := run.step(step)) is not None]


# -- comparing --------------------------------------------------------------------------------------------------


def differences(expected: Sequence[Json], actual: Sequence[Json]) -> Iterator[str]:
    """Each way in which the states differ, the earliest cycle first."""
    if len(expected) != len(actual):
        yield f"{len(expected)} cycles expected, {len(actual)} replayed"
    for n, (want, got) in enumerate(zip(expected, actual, strict=False)):
        if list(want.get("order") or ()) != list(got.get("order") or ()):
            yield f"cycle {n}: order {want.get('order')} expected, {got.get('order')} replayed"
        wanted = {w["key"]: w for w in want.get("workloads") or ()}
        shown = {w["key"]: w for w in got.get("workloads") or ()}
        for key in sorted(wanted.keys() | shown.keys()):
            yield from _workload_differences(f"cycle {n}: {key}", wanted.get(key), shown.get(key))


def _workload_differences(where: str, want: Json | None, got: Json | None) -> Iterator[str]:
    if want is None or got is None:
        yield f"{where}: {'not expected' if want is None else 'missing'}"
        return
    skipped = {"messageUnstable", "message"} if want.get("messageUnstable") else set()
    for field in sorted((want.keys() | got.keys()) - skipped):
        if want.get(field) != got.get(field):
            yield f"{where}: {field} {want.get(field)!r} expected, {got.get(field)!r} replayed"


def read_corpus(path: str) -> Iterator[Json]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def main(paths: Iterable[str]) -> int:
    agreed = total = shown = 0
    for path in paths:
        for case in read_corpus(path):
            total += 1
            found = list(differences(case["expected"], replay(case["input"])))
            agreed += not found
            if found and shown < 20:
                shown += 1
                print(f"{path}: {case['input'].get('name')}: {found[0]}", *found[1:4], sep="\n    ")
    print(f"agree {agreed} of {total}")
    return 0 if agreed == total else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
