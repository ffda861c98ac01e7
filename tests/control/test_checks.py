"""Between quota and start: admission checks, and a start that does not come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.backends.local import LocalBackend
from tenure.control import checks, verbs, views
from tenure.control.app import Platform
from tenure.control.checks import CARD_HEALTHY, RETRY_S, card_healthy
from tenure.control.conductor import Conductor
from tenure.control.readiness import backoff_s
from tenure.control.watch import Reading
from tenure.domain.attempt import AttemptSpec, AttemptState, Observation
from tenure.domain.ids import Instant, RunId
from tenure.domain.policy import WaitForPodsReady
from tenure.engine.checks import Answer, CheckState
from tenure.settings import load

from .conftest import ME, House

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: declared-card}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  admissionChecksStrategy: {admissionChecks: [{name: healthy}]}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu, tenure.dev/gpu-memory]
    flavors: [{name: declared-card, resources: [{name: nvidia.com/gpu, nominalQuota: 4}, {name: tenure.dev/gpu-memory, nominalQuota: 16Gi}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: default, namespace: default}
spec: {clusterQueue: q}
"""
CHECK = """
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: healthy}
spec: {controllerName: %s}
"""
WAIT = """
---
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
waitForPodsReady:
  timeout: 300ms
  requeuingStrategy: {backoffLimitCount: 1, backoffBaseSeconds: 1}
"""


@pytest.fixture
def opened(home: Path) -> Iterator[Callable[..., House]]:
    house = House(home)

    def open(policy: str) -> House:
        (home / "policy").mkdir(parents=True, exist_ok=True)
        (home / "policy" / "all.yaml").write_text(policy)
        return house.open()

    yield open
    house.check_laws()
    house.clear()
    house.close()


def held(house: House) -> int:
    return house.platform.engine.card_usage()[0].shares - house.platform.engine.card_usage()[0].shares_free


def test_a_healthy_card_lets_it_start_and_the_diary_says_so(opened: Callable[..., House]) -> None:
    house = opened(QUEUES + CHECK % CARD_HEALTHY)
    job = house.gpu("true")
    house.wait(job)
    told = [e["data"]["checks"] for e in views.events(house.platform, job=job) if e["kind"] == "JobChecked"]
    assert told[-1] == {"healthy": "Ready"}


def test_a_check_that_nobody_answers_holds_quota_and_is_named(opened: Callable[..., House]) -> None:
    house = opened(QUEUES + CHECK % "example.com/licence")
    job = house.gpu("true")
    house.until("it says so", lambda: house.show(job)["reason"] == "UnsatisfiedAdmissionChecks")
    shown = views.why(house.platform, job)
    assert (shown["state"], held(house)) == ("admitted", 1)
    assert "healthy is Pending" in shown["message"]
    assert "example.com/licence" in shown["message"]
    (blocker,) = shown["blockers"]
    assert (blocker["kind"], blocker["message"].split(":")[0]) == ("check", "admission check healthy is Pending")
    house.close(keep_jobs=True)
    house.open()  # asked again, and still nothing was started
    assert house.show(job)["state"] == "admitted"
    assert not house.run_dir(job).exists()
    (house.home / "policy" / "all.yaml").write_text(QUEUES + CHECK % CARD_HEALTHY)
    verbs.reload_policy(house.platform, caller=ME)
    house.wait(job)  # another policy asks somebody who answers
    assert house.show(job)["outcome"] == "completed"
    house.until("its quota is free", lambda: held(house) == 0)


def test_retry_queues_it_again_later_and_rejected_keeps_it_out(
    opened: Callable[..., House], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert RETRY_S > 1
    monkeypatch.setattr(checks, "RETRY_S", 0.3)
    house = opened(QUEUES + CHECK % CARD_HEALTHY)
    inspector = house.platform.conductor.inspector
    inspector.register(CARD_HEALTHY, card_healthy(lambda card: Reading(healthy=False, message="it smokes")))
    job = house.gpu("true")
    house.until("evicted", lambda: house.show(job)["attempts"] and house.show(job)["attempts"][0]["evicted"])
    first = house.show(job)["attempts"][0]
    assert first["evicted"]["reason"] == "AdmissionCheck"
    assert first["evicted"]["message"].startswith("At least one admission check is false: healthy is Retry: ")
    assert "it smokes" in first["evicted"]["message"]
    assert first["started_at"] is None
    waiting = house.wait_reason(job, "AdmissionCheck")
    assert "it smokes" in waiting["message"]
    inspector.register(CARD_HEALTHY, card_healthy(house.platform.watch.reading))
    house.wait(job)

    inspector.register(CARD_HEALTHY, lambda live: Answer(state=CheckState.REJECTED, message="no licence"))
    refused = house.gpu("true")
    shown = house.wait_reason(refused, "Deactivated")
    assert "The workload is deactivated due to Admission check(s): [healthy], were rejected" in shown["message"]
    assert shown["attempts"][0]["evicted"]["reason"] == "DeactivatedDueToAdmissionCheck"
    assert views.why(house.platform, refused)["blockers"][0]["kind"] == "Deactivated"
    inspector.register(CARD_HEALTHY, lambda live: Answer(state=CheckState.READY))
    verbs.release(house.platform, refused, caller=ME)
    house.wait(refused)


def test_one_that_was_sent_back_goes_behind_those_who_came_meanwhile(opened: Callable[..., House]) -> None:
    house = opened(QUEUES + CHECK % CARD_HEALTHY)
    ready = Answer(state=CheckState.READY)
    says = {"early": Answer(message="not yet")}
    conductor = house.platform.conductor
    conductor.inspector.register(CARD_HEALTHY, lambda live: says.get(live.spec.name, ready))
    early = house.gpu("true", shares=4, name="early")
    house.until("it holds quota", lambda: house.show(early)["reason"] == "UnsatisfiedAdmissionChecks")
    holder = house.gpu("sleep", "60", shares=4, name="holder")
    late = house.gpu("true", shares=4, name="late")
    house.wait_reason(late, "WaitingForQuota")
    says["early"] = Answer(state=CheckState.RETRY, message="not now", requeue_after_s=0.5)
    conductor.wake()
    house.until("it is sent back", lambda: house.show(early)["attempts"][0]["evicted"])
    del says["early"]
    house.wait(holder, "running")
    house.wait_reason(early, "WaitingForQuota")  # its time is over
    assert house.platform.engine.order("q") == (late, early)
    house.close(keep_jobs=True)
    house.open()
    assert house.platform.engine.order("q") == (late, early)
    house.cancel(holder, grace_s=0.2)
    house.wait(early)
    ends = [house.show(job)["started_at"] for job in (late, early)]
    assert ends == sorted(ends)


class Sluggish(LocalBackend):
    """The real one, whose first starts get lost on the way."""

    lost = 2

    def start(self, attempt: AttemptSpec) -> None:
        if self.lost:
            self.lost -= 1
            return
        super().start(attempt)


def test_what_does_not_start_in_time_makes_room_and_is_given_up_at_last(home: Path) -> None:
    (home / "policy").mkdir(parents=True)
    (home / "policy" / "all.yaml").write_text(
        QUEUES.replace("  admissionChecksStrategy: {admissionChecks: [{name: healthy}]}\n", "") + WAIT
    )
    settings = load({"TENURE_HOME": str(home), "PATH": "/usr/bin:/bin", "HOME": str(home.parent)})
    house = House(home)
    backend = Sluggish(settings.daemon_dir)
    house.platform = Platform.open(settings, cards_flag=["8x16Gi"], backend=backend)
    house.platform.start()
    try:
        job = house.gpu("true")
        shown = house.wait_reason(job, "Deactivated")
        assert "exceeding the maximum number of re-queuing retries" in shown["message"]
        late = shown["attempts"][0]["evicted"]
        assert late["reason"] == "PodsReadyTimeout"
        assert late["message"].startswith(f"Exceeded the PodsReady timeout default/{job}: ")
        assert "requeued (1 of 1)" in late["message"]
        assert shown["attempts"][1]["evicted"]["reason"] == "DeactivatedDueToRequeuingLimitExceeded"
        policy = home / "policy" / "all.yaml"
        policy.write_text(policy.read_text().replace("timeout: 300ms", "timeout: 5m"))  # a real start takes its time
        verbs.reload_policy(house.platform, caller=ME)
        verbs.release(house.platform, job, caller=ME)
        house.wait(job)
        assert house.show(job)["outcome"] == "completed"
        house.check_laws()
    finally:
        house.close()


def test_the_backoff_doubles_up_to_its_longest() -> None:
    rule = WaitForPodsReady(backoff_base_s=10, backoff_max_s=60)
    assert [backoff_s(rule, n) for n in (1, 2, 3, 4, 500)] == [10, 20, 40, 60, 60]


def test_a_change_of_code_is_told_once_an_attempt(house: House) -> None:
    job = house.submit("sleep", "60")
    house.wait(job, "running")
    seen = Observation(
        run_id=RunId(f"{job}.1"), state=AttemptState.RUNNING, at=Instant(1), started_at=Instant(1),
        details={"code_changed": "train.py"},
    )  # fmt: skip
    conductor: Conductor = house.platform.conductor

    def told() -> list[Any]:
        return [e for e in views.events(house.platform, job=job) if e["kind"] == "CodeChanged"]

    for _ in range(3):
        conductor.heard(seen)
    house.until("it is told", told)
    conductor.live[next(iter(conductor.live))].code_told = 0  # as after a restart
    conductor.heard(seen)
    other = house.submit("true")
    house.wait(other)
    assert len(told()) == 1
