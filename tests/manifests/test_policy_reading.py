"""What Kueue's objects mean once read: every field in its place, defaults filled in, both versions alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.domain.errors import InvalidManifest, Problem
from tenure.domain.policy import (
    AdmissionCheckRef,
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
    LimitRange,
    LocalQueue,
    Namespace,
    Preemption,
    PreemptionPolicy,
    PriorityClass,
    QueueingStrategy,
    Quota,
    QuotaCheckStrategy,
    ResourceGroup,
    ResourceQuota,
    ShareStrategy,
    StopPolicy,
    Taint,
    Toleration,
    Transformation,
    WaitForPodsReady,
    WhenCanBorrow,
    WhenCanPreempt,
)
from tenure.manifests.policy import read_policy, read_policy_dir

from .policies import obj, read

FULL_QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata:
  name: q
  labels: {team: a}
  annotations: {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
  creationTimestamp: null
spec:
  cohortName: c
  queueingStrategy: StrictFIFO
  namespaceSelector:
    matchLabels: {a: b}
    matchExpressions:
    - {key: k, operator: NotIn, values: [x, y]}
  resourceGroups:
  - coveredResources: [cpu, memory, nvidia.com/gpu]
    flavors:
    - name: f
      resources:
      - {name: cpu, nominalQuota: 1.5}
      - {name: memory, nominalQuota: 10Gi, borrowingLimit: 0}
      - {name: nvidia.com/gpu, nominalQuota: "8", borrowingLimit: 1, lendingLimit: 2}
  flavorFungibility: {whenCanBorrow: TryNextFlavor, whenCanPreempt: TryNextFlavor, preference: PreemptionOverBorrowing}
  preemption:
    withinClusterQueue: LowerOrNewerEqualPriority
    reclaimWithinCohort: Any
    borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: -5}
  stopPolicy: Hold
  fairSharing: {weight: 500m}
  admissionChecksStrategy:
    admissionChecks: [{name: a, onFlavors: [f]}, {name: b}]
status:
  anything: [goes, here]
"""


def test_a_cluster_queue_with_everything():
    queue = read(FULL_QUEUE, obj("ResourceFlavor", "f")).policy.cluster_queues["q"]
    assert queue == ClusterQueue(
        name="q",
        cohort="c",
        resource_groups=(
            ResourceGroup(
                covered_resources=("cpu", "memory", "nvidia.com/gpu"),
                flavors=(
                    FlavorQuotas(
                        flavor="f",
                        resources={
                            "cpu": Quota(nominal=1500),
                            "memory": Quota(nominal=10 * 2**30, borrowing_limit=0),
                            "nvidia.com/gpu": Quota(nominal=8, borrowing_limit=1, lending_limit=2),
                        },
                    ),
                ),
            ),
        ),
        queueing_strategy=QueueingStrategy.STRICT_FIFO,
        namespace_selector=LabelSelector(
            match_labels={"a": "b"},
            match_expressions=(LabelRequirement(key="k", operator="NotIn", values=("x", "y")),),
        ),
        fungibility=Fungibility(
            when_can_borrow=WhenCanBorrow.TRY_NEXT_FLAVOR,
            when_can_preempt=WhenCanPreempt.TRY_NEXT_FLAVOR,
            preference=CurrencyPreference.PREEMPTION_OVER_BORROWING,
        ),
        preemption=Preemption(
            within_cluster_queue=PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
            reclaim_within_cohort=PreemptionPolicy.ANY,
            borrow_within_cohort=BorrowWithinCohort(policy=BorrowPolicy.LOWER_PRIORITY, max_priority_threshold=-5),
        ),
        stop_policy=StopPolicy.HOLD,
        fair_weight=0.5,
        admission_checks=(AdmissionCheckRef(name="a", on_flavors=("f",)), AdmissionCheckRef(name="b")),
    )


def test_a_cluster_queue_with_nothing_has_kueues_defaults():
    queue = read(obj("ClusterQueue", "q")).policy.cluster_queues["q"]
    assert queue == ClusterQueue(name="q")
    assert queue.namespace_selector is None  # no namespace matches


def test_an_empty_selector_is_not_an_absent_one():
    def selector(text: str) -> LabelSelector | None:
        return (
            read(obj("ClusterQueue", "q", f"spec: {{namespaceSelector: {text}}}"))
            .policy.cluster_queues["q"]
            .namespace_selector
        )

    assert selector("{}") == LabelSelector()
    assert selector("null") is None


@pytest.mark.parametrize("version", ["kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"])
def test_the_spellings_of_v1beta1_are_read(version: str):
    old = obj(
        "ClusterQueue",
        "q",
        "spec: {cohort: c, flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: Preempt}, admissionChecks: [a]}",
        version=version,
    )
    parent = obj("Cohort", "c", "spec: {parent: root}", version=version)
    policy = read(old, parent).policy
    queue = policy.cluster_queues["q"]
    assert queue.cohort == "c"
    assert queue.fungibility.when_can_borrow is WhenCanBorrow.MAY_STOP_SEARCH
    assert queue.fungibility.when_can_preempt is WhenCanPreempt.MAY_STOP_SEARCH
    assert queue.admission_checks == (AdmissionCheckRef(name="a"),)
    assert policy.cohorts["c"] == Cohort(name="c", parent="root")


def test_a_cohort_of_v1alpha1_is_read():
    assert "c" in read(obj("Cohort", "c", version="kueue.x-k8s.io/v1alpha1")).policy.cohorts


def test_flavors_keep_their_order_and_their_parts():
    text = obj(
        "ResourceFlavor",
        "f",
        "spec:\n"
        "  nodeLabels: {zone: a}\n"
        "  nodeTaints: [{key: t, value: v, effect: NoExecute}]\n"
        "  tolerations: [{operator: Exists}, {key: t, value: v, effect: NoSchedule}]\n"
        "  topologyName: top\n",
    )
    assert read(text).policy.flavors["f"] == Flavor(
        name="f",
        node_labels={"zone": "a"},
        node_taints=(Taint(key="t", value="v", effect="NoExecute"),),
        tolerations=(Toleration(operator="Exists"), Toleration(key="t", value="v", effect="NoSchedule")),
        topology_name="top",
    )


def test_the_small_objects():
    policy = read(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {a: b}}\nspec: {finalizers: [kubernetes]}\n",
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: l, namespace: team}\n"
        "spec: {clusterQueue: q, stopPolicy: HoldAndDrain}\n",
        obj("LocalQueue", "l", "spec: {clusterQueue: q}"),
        obj("WorkloadPriorityClass", "high", "value: -7\ndescription: d"),
        obj("PriorityClass", "p", "value: 7\nglobalDefault: true", version="scheduling.k8s.io/v1"),
        obj("AdmissionCheck", "a", "spec: {controllerName: c, parameters: {kind: K}, retryDelayMinutes: 5}"),
        obj(
            "ResourceQuota",
            "r",
            'spec: {hard: {requests.nvidia.com/gpu: "4", cpu: 1500m, count/jobs.batch: 9}}',
            version="v1",
        ),
        obj(
            "LimitRange",
            "lr",
            "spec: {limits: [{type: Container, default: {cpu: 2, memory: 1Gi}, defaultRequest: {cpu: 1}, min: {cpu: 500m}, max: {cpu: 4}}]}",
            version="v1",
        ),
        obj("ClusterQueue", "q"),
    ).policy
    assert policy.namespaces["team"] == Namespace(name="team", labels={"a": "b", "kubernetes.io/metadata.name": "team"})
    assert policy.local_queues == {
        ("team", "l"): LocalQueue(name="l", namespace="team", cluster_queue="q", stop_policy=StopPolicy.HOLD_AND_DRAIN),
        ("default", "l"): LocalQueue(name="l", namespace="default", cluster_queue="q"),
    }
    assert policy.workload_priority_classes == {"high": PriorityClass(name="high", value=-7, description="d")}
    assert policy.priority_classes == {"p": PriorityClass(name="p", value=7, workload=False, global_default=True)}
    assert policy.admission_checks == {"a": "c"}
    assert policy.resource_quotas == (
        ResourceQuota(
            name="r", namespace="default", hard={"requests.nvidia.com/gpu": 4, "requests.cpu": 1500, "count/jobs": 9}
        ),
    )
    assert policy.limit_ranges == (
        LimitRange(
            name="lr",
            namespace="default",
            default_requests={"cpu": 1000, "memory": 2**30},
            minimum={"cpu": 500},
            maximum={"cpu": 4000},
        ),
    )


CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
fairSharing: {preemptionStrategies: [LessThanInitialShare]}
waitForPodsReady:
  timeout: 1m30s
  requeuingStrategy: {timestamp: Creation, backoffLimitCount: 3, backoffBaseSeconds: 10, backoffMaxSeconds: 20}
resources:
  excludeResourcePrefixes: [example.com/]
  quotaCheckStrategy: IgnoreUndeclared
  transformations:
  - {input: nvidia.com/gpumem, strategy: Replace, multiplyBy: nvidia.com/gpu, outputs: {total-mem: 1Mi, n: 2}}
  - {input: other}
"""


def test_a_configuration():
    policy = read(CONFIGURATION).policy
    assert policy.fair_sharing == FairSharing(preemption_strategies=(ShareStrategy.LESS_THAN_INITIAL_SHARE,))
    assert policy.wait_for_pods_ready == WaitForPodsReady(
        timeout_s=90.0, backoff_base_s=10.0, backoff_max_s=20.0, backoff_limit_count=3, requeuing_timestamp="Creation"
    )
    assert policy.exclude_resource_prefixes == ("example.com/",)
    assert policy.quota_check is QuotaCheckStrategy.IGNORE_UNDECLARED
    assert policy.transformations == (
        Transformation(
            input="nvidia.com/gpumem",
            replace=True,
            multiply_by="nvidia.com/gpu",
            outputs={"total-mem": "1Mi", "n": "2"},
        ),
        Transformation(input="other"),
    )


def test_features_may_be_written_and_switched_off_as_in_v1beta1():
    text = (
        "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
        "fairSharing: {enable: false}\nwaitForPodsReady: {enable: false}\n"
    )
    policy = read(text).policy
    assert policy.fair_sharing is None
    assert policy.wait_for_pods_ready is None


def test_presence_alone_switches_fair_sharing_on():
    text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairSharing: {}\n"
    assert read(text).policy.fair_sharing == FairSharing()


def test_no_files_are_an_empty_policy():
    policy = read_policy([]).policy
    assert policy.cluster_queues == {}


def test_problems_name_the_file_they_are_in(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(obj("ResourceFlavor", "f"))
    (tmp_path / "b.yaml").write_text("---\n---\n" + obj("ResourceFlavor", "f"))
    (tmp_path / "c.yaml").write_bytes(b"\xff")
    with pytest.raises(InvalidManifest) as caught:
        read_policy_dir(tmp_path)
    assert [(Path(p.file).name, p.document) for p in caught.value.problems] == [("c.yaml", None), ("b.yaml", 2)]
    assert f"{tmp_path}/b.yaml:3 (document 2)" in str(caught.value)


def test_objects_within_a_list_are_named_by_their_place():
    text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: kueue.x-k8s.io/v1beta2\n  kind: LocalQueue\n  metadata: {name: l}\n  spec: {clusterQ: x}\n"
    with pytest.raises(InvalidManifest) as caught:
        read_policy([("f", text)])
    assert [p.field for p in caught.value.problems] == ["items[0].spec.clusterQ", "items[0].spec.clusterQueue"]
    assert caught.value.problems[0].line == 7


def test_what_is_refused_tells_errors_and_warnings_apart() -> None:
    where = {"file": "q.yaml", "document": 1, "line": 5, "field": "spec"}
    odd = Problem(**where, message="is odd", severity="warning")
    refused = InvalidManifest([odd, Problem(**where, message="is wrong")])
    assert str(refused).splitlines() == [
        "q.yaml:5 (document 1): spec: warning: is odd",
        "q.yaml:5 (document 1): spec: is wrong",
    ]
