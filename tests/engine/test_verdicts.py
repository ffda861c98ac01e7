"""What is said of a parked workload is true now, not when it was last looked at."""

from __future__ import annotations

from tenure.domain.amounts import GPU
from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.policy import (
    ClusterQueue,
    Flavor,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    Policy,
    Quota,
    ResourceGroup,
)
from tenure.domain.reasons import PendingReason
from tenure.domain.workload import PodSet, Workload
from tenure.engine import Engine


def _policy() -> Policy:
    flavors = (FlavorQuotas(flavor="card", resources={GPU: Quota(nominal=8)}),)
    queue = ClusterQueue(
        name="cq",
        namespace_selector=LabelSelector(),
        resource_groups=(ResourceGroup(covered_resources=(GPU,), flavors=flavors),),
    )
    return Policy(
        flavors={"card": Flavor(name="card")},
        cluster_queues={"cq": queue},
        local_queues={("default", "q"): LocalQueue(name="q", namespace="default", cluster_queue="cq")},
    )


def _workload(name: str, shares: int, at: int) -> Workload:
    pods = (PodSet(requests={GPU: shares}),)
    return Workload(
        key=WorkloadKey(name), uid=name, namespace="default", queue="q", pod_sets=pods, created_at=Instant(at)
    )


def _settle(engine: Engine, now: int) -> None:
    for tick in range(now, now + 20):
        engine.cycle(Instant(tick))


def test_the_numbers_of_a_parked_workload_are_those_of_now():
    engine = Engine(_policy())
    engine.add(_workload("one", 4, 1))
    engine.add(_workload("two", 2, 2))
    _settle(engine, 10)
    engine.add(_workload("big", 8, 3))
    _settle(engine, 40)
    said = engine.verdict(WorkloadKey("big"))
    assert said is not None
    assert (said.reason, "6 more needed" in said.message) == (PendingReason.WAITING_FOR_QUOTA, True)
    engine.remove(WorkloadKey("two"))
    engine.add(_workload("three", 1, 0))
    _settle(engine, 80)
    now = engine.verdict(WorkloadKey("big"))
    assert now is not None
    assert "5 more needed" in now.message
    told = engine.explain(WorkloadKey("big"), Instant(200))
    assert told.message == now.message
    (blocker,) = told.blockers
    assert (blocker.asked, blocker.free) == (8, 3)
