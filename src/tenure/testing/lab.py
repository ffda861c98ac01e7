"""Small worlds for tests: a policy, cards and workloads from plain tables, and a story played on a real engine.

A story is a table with `policy`, `cards` and `steps`; tests/engine/scenarios holds many, a file each.  Amounts are
written as people write them (`gpu = 1`, `memory = "10Gi"`); `gpu` and `memory` stand for the card's own resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tenure.domain.amounts import GPU, GPU_MEMORY, parse_quantity
from tenure.domain.ids import CardId, Instant, WorkloadKey
from tenure.domain.options import Ageing, LivelockRule
from tenure.domain.plan import Plan
from tenure.domain.policy import (
    BorrowPolicy,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    FairSharing,
    Flavor,
    FlavorQuotas,
    Fungibility,
    LabelSelector,
    LocalQueue,
    Policy,
    Preemption,
    PreemptionPolicy,
    PriorityClass,
    QueueingStrategy,
    Quota,
    QuotaCheckStrategy,
    ResourceGroup,
    StopPolicy,
    Taint,
    Transformation,
    WhenCanBorrow,
    WhenCanPreempt,
)
from tenure.domain.workload import Card, PodSet, Workload
from tenure.engine import Engine, EngineOptions

__all__ = ["Story", "cards", "options", "policy", "workload"]

Table = Mapping[str, Any]
_WORDS = {"gpu": GPU, "memory": GPU_MEMORY}


def _amounts(table: Table) -> dict[str, int]:
    return {_WORDS.get(r, r): parse_quantity(n, resource=_WORDS.get(r, r)) for r, n in table.items()}


def _groups(owns: Table, borrows: Table, lends: Table) -> tuple[ResourceGroup, ...]:
    """`owns` maps a flavor to amounts, or is itself a map of amounts of the one flavor `card`."""
    if not owns:
        return ()
    by_flavor = owns if all(isinstance(v, Mapping) for v in owns.values()) else {"card": owns}
    flavors = []
    for flavor, amounts in by_flavor.items():
        limits, lending = _amounts(borrows.get(flavor, borrows)), _amounts(lends.get(flavor, lends))
        quotas = {
            r: Quota(nominal=n, borrowing_limit=limits.get(r), lending_limit=lending.get(r))
            for r, n in _amounts(amounts).items()
        }
        flavors.append(FlavorQuotas(flavor=flavor, resources=quotas))
    return (ResourceGroup(covered_resources=tuple(flavors[0].resources), flavors=tuple(flavors)),)


def _queue(name: str, raw: Table) -> ClusterQueue:
    return ClusterQueue(
        name=name,
        cohort=raw.get("cohort"),
        resource_groups=_groups(raw.get("owns", {}), raw.get("borrows", {}), raw.get("lends", {})),
        queueing_strategy=QueueingStrategy(raw.get("strategy", "BestEffortFIFO")),
        namespace_selector=LabelSelector(),
        fungibility=Fungibility(
            when_can_borrow=WhenCanBorrow(raw.get("when_can_borrow", "MayStopSearch")),
            when_can_preempt=WhenCanPreempt(raw.get("when_can_preempt", "TryNextFlavor")),
        ),
        preemption=Preemption(
            within_cluster_queue=PreemptionPolicy(raw.get("within", "Never")),
            reclaim_within_cohort=PreemptionPolicy(raw.get("reclaim", "Never")),
            borrow_within_cohort=BorrowWithinCohort(policy=BorrowPolicy(raw.get("while_borrowing", "Never"))),
        ),
        stop_policy=StopPolicy(raw.get("stop", "None")),
        fair_weight=float(raw.get("weight", 1)),
    )


def policy(raw: Table) -> Policy:
    """Every cluster queue gets a local queue of its name in namespace `default`, unless `local` says otherwise."""
    queues = {name: _queue(name, q) for name, q in raw["queues"].items()}
    flavors = {f.flavor for q in queues.values() for g in q.resource_groups for f in g.flavors} - {
        *raw.get("missing_flavors", ())
    }
    about = raw.get("flavors", {})
    local: Table = raw.get("local", {name: {} for name in queues})
    return Policy(
        flavors={
            name: Flavor(
                name=name,
                node_labels=dict(about.get(name, {}).get("labels", {})),
                node_taints=tuple(Taint(**t) for t in about.get(name, {}).get("taints", ())),
            )
            for name in sorted(flavors)
        },
        cluster_queues=queues,
        cohorts={
            name: Cohort(
                name=name,
                parent=c.get("parent"),
                resource_groups=_groups(c.get("owns", {}), c.get("borrows", {}), c.get("lends", {})),
                fair_weight=float(c.get("weight", 1)),
            )
            for name, c in raw.get("cohorts", {}).items()
        },
        local_queues={
            ("default", name): LocalQueue(
                name=name,
                namespace="default",
                cluster_queue=q.get("cluster_queue", name),
                stop_policy=StopPolicy(q.get("stop", "None")),
            )
            for name, q in local.items()
        },
        workload_priority_classes={n: PriorityClass(name=n, value=v) for n, v in raw.get("priorities", {}).items()},
        fair_sharing=FairSharing() if raw.get("fair_sharing") else None,
        quota_check=QuotaCheckStrategy(raw.get("quota_check", "BlockUndeclared")),
        exclude_resource_prefixes=tuple(raw.get("exclude", ())),
        transformations=tuple(
            Transformation(
                input=t["input"], replace=t.get("replace", False), multiply_by=t.get("multiply_by"), outputs=t["outputs"]
            )
            for t in raw.get("transformations", ())
        ),
    )  # fmt: skip


def cards(raw: Iterable[Table]) -> tuple[Card, ...]:
    return tuple(
        Card(
            id=CardId(c["id"]),
            flavor=c.get("flavor", "card"),
            shares=c.get("shares", 8),
            memory=parse_quantity(c.get("memory", "80Gi")),
            index=index,
            cordoned=c.get("cordoned", False),
        )
        for index, c in enumerate(raw)
    )


def workload(raw: Table, *, at: Instant, priorities: Mapping[str, int]) -> Workload:
    """One pod set `main` of `count` (at least `min`) processes, each asking for what the table asks for."""
    priority = raw.get("priority", 0)
    asks = {k: v for k, v in raw.items() if k in _WORDS or "/" in k or k == "cpu"}
    return Workload(
        key=WorkloadKey(raw["job"]),
        uid=raw["job"],
        namespace="default",
        queue=raw["queue"],
        pod_sets=(
            PodSet(
                count=raw.get("count", 1),
                min_count=raw.get("min"),
                requests=_amounts(asks),
                node_selector=dict(raw.get("selector", {})),
            ),
        ),
        created_at=at,
        priority=priorities[priority] if isinstance(priority, str) else priority,
        active=raw.get("active", True),
        whole_card=raw.get("whole_card", False),
    )


def options(raw: Table) -> EngineOptions:
    """`shrink_gangs`, and what goes beyond Kueue in seconds: `min_runtime_s`, `reserve_after_s`, `ageing = {every_s, step,
    most}`, `livelock = {takes, within_s}`."""
    ageing, livelock, reserve = raw.get("ageing"), raw.get("livelock"), raw.get("reserve_after_s")
    return EngineOptions(
        shrink_gangs=raw.get("shrink_gangs", True),
        min_runtime_us=raw.get("min_runtime_s", 0) * 1_000_000,
        reserve_after_us=None if reserve is None else reserve * 1_000_000,
        ageing=ageing
        and Ageing(every_us=ageing["every_s"] * 1_000_000, step=ageing.get("step", 1), most=ageing["most"]),
        livelock=livelock and LivelockRule(takes=livelock["takes"], within_us=livelock["within_s"] * 1_000_000),
    )


@dataclass(slots=True)
class Outcome:
    """What the cycles of one `settle` decided, in order."""

    admits: list[str] = field(default_factory=list)
    preempts: list[str] = field(default_factory=list)
    shrinks: list[str] = field(default_factory=list)
    evicts: list[str] = field(default_factory=list)
    livelocks: list[str] = field(default_factory=list)

    def add(self, plan: Plan) -> None:
        self.admits += [str(a.key) for a in plan.admits]
        self.preempts += [f"{p.victim} for {p.preemptor}: {p.reason}" for p in plan.preempts]
        self.shrinks += [f"{s.victim} to {s.count} for {s.preemptor}" for s in plan.shrinks]
        self.evicts += [f"{e.key}: {e.reason}" for e in plan.evicts]
        self.livelocks += [f"{x.keeper} keeps it from {x.other}: {x.takes}" for x in plan.livelocks]


class Story:
    """Plays steps on a real engine.  `play` raises AssertionError where the story went another way."""

    def __init__(self, raw: Table) -> None:
        self.raw = raw
        self.now = Instant(0)
        self.priorities: Mapping[str, int] = raw["policy"].get("priorities", {})
        asked = options({**raw.get("options", {}), "shrink_gangs": raw.get("shrink_gangs", True)})
        self.engine = Engine(policy(raw["policy"]), cards(raw.get("cards", ())), asked)
        self.known: dict[str, Workload] = {}

    def play(self) -> None:
        for number, step in enumerate(self.raw["steps"], 1):
            self.now = Instant(self.now + 1_000_000)
            self._step(step, f"step {number} ({step['do']})")

    def _step(self, step: Table, where: str) -> None:
        match step["do"]:
            case "submit":
                w = workload(step, at=self.now, priorities=self.priorities)
                self.known[w.key] = w
                wait = step.get("wait_s")
                until = None if wait is None else Instant(self.now + wait * 1_000_000)
                self.engine.add(w, requeue_at=until)
            case "end":
                for job in _listed(step["job"]):
                    self.engine.remove(WorkloadKey(job))
            case "left":
                for job in _listed(step["job"]):
                    self.engine.released(WorkloadKey(job), at=self.now)
            case "priority":
                changed = replace(self.known[step["job"]], priority=step["priority"])
                self.known[changed.key] = changed
                self.engine.update(changed)
            case "shrunk":
                self.engine.resized(WorkloadKey(step["job"]), "main", step["count"])
            case "policy":
                self.engine.replace_policy(policy({**self.raw["policy"], **step["policy"]}))
            case "cards":
                self.engine.replace_cards(cards(step["cards"]))
            case "wait":
                self.now = Instant(self.now + step["seconds"] * 1_000_000)
            case "settle":
                self._compare(step, self.settle(), where)
            case "restart":
                self.restart()
            case _:
                raise ValueError(
                    f"{where}: unknown; known: submit end left priority shrunk policy cards wait settle restart"
                )
        self._pending(step.get("pending", {}), where)
        for job, words in step.get("because", {}).items():
            told = self.engine.explain(WorkloadKey(job), self.now)
            said = " | ".join(
                [told.message]
                + [b.message for b in told.blockers]
                + [h.because for b in told.blockers for h in b.held_by]
            )
            assert words in said, f"{where}: why {job}: {said}"

    def settle(self) -> Outcome:
        """Cycles until nothing is decided and the same heads come again.  Stops nobody: `left` does."""
        outcome = Outcome()
        before = None
        for _ in range(1000):
            if not self.engine.has_heads(self.now):
                break
            plan = self.engine.cycle(self.now)
            outcome.add(plan)
            decided = bool(plan.admits or plan.preempts or plan.shrinks or plan.evicts)
            if not decided and plan.order == before:
                break
            before = None if decided else plan.order
        else:
            raise AssertionError("the engine does not come to rest")
        return outcome

    def restart(self) -> None:
        """A new engine from what the old one's users would have written down."""
        old = self.engine
        self.engine = Engine(old.policy, old.cards, old.options)
        for held in old.reservations():
            self.engine.restore(held.workload, held.admission, reserved_at=held.reserved_at, evicting=held.evicting)
        for name in old.policy.cluster_queues:
            for key in old.order(name):
                self.engine.add(self.known[key])

    def _compare(self, step: Table, outcome: Outcome, where: str) -> None:
        for word in ("admits", "preempts", "shrinks", "evicts", "livelocks"):
            wanted: Sequence[str] = step.get(word, [])
            got = getattr(outcome, word)
            assert sorted(wanted) == sorted(got), f"{where}: {word} {wanted} expected, {got} decided"

    def _pending(self, wanted: Mapping[str, str], where: str) -> None:
        """`pending.JOB = "Reason"` or `"Reason: part of the message"`."""
        for job, expected in wanted.items():
            pend = self.engine.status(WorkloadKey(job))
            assert pend is not None, f"{where}: {job} does not wait"
            reason, _, part = expected.partition(": ")
            assert (pend.reason, part in pend.message) == (reason, True), f"{where}: {job} waits for {pend}"


def _listed(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value
