"""A policy written as YAML and read again is the same policy."""

from __future__ import annotations

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

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
    Policy,
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
from tenure.manifests.dump import dump_policy
from tenure.manifests.policy import read_policy

# Names and values that YAML could take for numbers, booleans or nothing are the interesting ones.
NAMES = st.sampled_from(["a", "b-c", "1", "1e3", "0x1f", "no", "null", "on", "0o17", "x.y", "007", "1.5"])
VALUES = st.sampled_from(["", "v", "1", "yes", "1e3", "0o17", "1_000", "null", "V.x", "1.5", "0x1F", "12"])
LABELS = st.dictionaries(st.sampled_from(["a", "yes", "1", "x.io/y", "null", "1.5"]), VALUES, max_size=3)
RESOURCES = ["cpu", "memory", "nvidia.com/gpu", "tenure.dev/gpu-memory", "example.com/x"]
AMOUNTS = st.one_of(st.integers(0, 20), st.integers(0, 2**62), st.sampled_from([2**30, 1500, 10**9]))
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff\ufeff"), max_size=20)


def maybe(strategy):
    return st.none() | strategy


@st.composite
def groups(draw, *, joined: bool, capped: bool):
    covered = draw(st.lists(st.sampled_from(RESOURCES), unique=True, max_size=4))
    cut = draw(st.integers(0, len(covered)))
    names = draw(st.lists(NAMES, unique=True, min_size=2, max_size=4))
    made = []
    for part, flavors in ((covered[:cut], names[::2]), (covered[cut:], names[1::2])):
        if not part:
            continue
        rows = []
        for flavor in flavors:
            quotas = {}
            for resource in part:
                nominal = draw(AMOUNTS)
                lending = draw(maybe(st.integers(0, nominal) if capped else AMOUNTS)) if joined else None
                borrowing = draw(maybe(AMOUNTS)) if joined else None
                quotas[resource] = Quota(nominal=nominal, borrowing_limit=borrowing, lending_limit=lending)
            rows.append(FlavorQuotas(flavor=flavor, resources=quotas))
        made.append(ResourceGroup(covered_resources=tuple(part), flavors=tuple(rows)))
    return tuple(made)


REQUIREMENTS = st.one_of(
    st.builds(
        LabelRequirement,
        key=st.just("k"),
        operator=st.sampled_from(["In", "NotIn"]),
        values=st.lists(VALUES, min_size=1, max_size=2).map(tuple),
    ),
    st.builds(LabelRequirement, key=st.just("k"), operator=st.sampled_from(["Exists", "DoesNotExist"])),
)
SELECTORS = st.builds(
    LabelSelector, match_labels=LABELS, match_expressions=st.lists(REQUIREMENTS, max_size=2).map(tuple)
)
EFFECTS = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
TOLERATIONS = st.one_of(
    st.builds(Toleration, key=st.sampled_from(["k", "yes"]), value=VALUES, effect=EFFECTS | st.just("")),
    st.builds(Toleration, key=st.sampled_from(["", "k"]), operator=st.just("Exists"), effect=EFFECTS | st.just("")),
)
WEIGHTS = st.one_of(
    st.just(1.0), st.just(0.0), st.integers(0, 1000).map(float), st.floats(1e-8, 1e18), st.sampled_from([0.5, 1e-7])
)


@st.composite
def flavor(draw, name: str):
    labels = draw(LABELS)
    taints = draw(
        st.lists(
            st.builds(Taint, key=NAMES, value=VALUES, effect=EFFECTS), max_size=2, unique_by=lambda t: (t.key, t.effect)
        )
    )
    return Flavor(
        name=name,
        node_labels=labels,
        node_taints=tuple(taints),
        tolerations=tuple(draw(st.lists(TOLERATIONS, max_size=2))),
        topology_name=draw(maybe(NAMES)) if labels else None,
    )


@st.composite
def cluster_queue(draw, name: str):
    cohort = draw(maybe(NAMES))
    reclaim = draw(st.sampled_from([PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY]))
    borrow = BorrowPolicy.NEVER if reclaim is PreemptionPolicy.NEVER else draw(st.sampled_from(BorrowPolicy))
    can_borrow, can_preempt = draw(st.sampled_from(WhenCanBorrow)), draw(st.sampled_from(WhenCanPreempt))
    free = can_borrow is WhenCanBorrow.TRY_NEXT_FLAVOR and can_preempt is WhenCanPreempt.TRY_NEXT_FLAVOR
    return ClusterQueue(
        name=name,
        cohort=cohort,
        resource_groups=draw(groups(joined=cohort is not None, capped=True)),
        queueing_strategy=draw(st.sampled_from(QueueingStrategy)),
        namespace_selector=draw(maybe(SELECTORS)),
        fungibility=Fungibility(
            when_can_borrow=can_borrow,
            when_can_preempt=can_preempt,
            preference=draw(maybe(st.sampled_from(CurrencyPreference))) if free else None,
        ),
        preemption=Preemption(
            within_cluster_queue=draw(
                st.sampled_from(
                    [
                        PreemptionPolicy.NEVER,
                        PreemptionPolicy.LOWER_PRIORITY,
                        PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
                    ]
                )
            ),
            reclaim_within_cohort=reclaim,
            borrow_within_cohort=BorrowWithinCohort(
                policy=borrow, max_priority_threshold=draw(maybe(st.integers(-(2**31), 2**31 - 1)))
            ),
        ),
        stop_policy=draw(st.sampled_from(StopPolicy)),
        fair_weight=draw(WEIGHTS),
        admission_checks=tuple(
            AdmissionCheckRef(name=n, on_flavors=tuple(draw(st.lists(NAMES, max_size=2))))
            for n in draw(st.lists(NAMES, unique=True, max_size=2))
        ),
    )


@st.composite
def cohort(draw, name: str):
    parent = draw(maybe(NAMES))
    return Cohort(
        name=name,
        parent=parent,
        resource_groups=draw(groups(joined=parent is not None, capped=False)),
        fair_weight=draw(WEIGHTS),
    )


@st.composite
def named(draw, make):
    return {name: draw(make(name)) for name in draw(st.lists(NAMES, unique=True, max_size=2))}


def classes(*, workload: bool):
    return named(
        lambda name: st.builds(
            PriorityClass,
            name=st.just(name),
            value=st.integers(-(2**31), 10**9),
            description=TEXTS,
            workload=st.just(workload),
        )
    )


QUOTA_KEYS = st.sampled_from(["requests.cpu", "requests.memory", "requests.nvidia.com/gpu", "count/jobs"])
AMOUNT_MAPS = st.dictionaries(st.sampled_from(RESOURCES), st.integers(5, 10), max_size=2)


@st.composite
def policies(draw):
    namespaces = draw(
        named(
            lambda n: LABELS.map(lambda labels: Namespace(name=n, labels={**labels, "kubernetes.io/metadata.name": n}))
        )
    )
    keys = draw(st.lists(st.tuples(NAMES, NAMES), unique=True, max_size=3))
    return Policy(
        flavors=draw(named(flavor)),
        cluster_queues=draw(named(cluster_queue)),
        cohorts=draw(named(cohort)),
        local_queues={
            (space, name): LocalQueue(
                name=name, namespace=space, cluster_queue=draw(NAMES), stop_policy=draw(st.sampled_from(StopPolicy))
            )
            for space, name in keys
        },
        workload_priority_classes=draw(classes(workload=True)),
        priority_classes=draw(classes(workload=False)),
        namespaces=namespaces,
        resource_quotas=tuple(
            ResourceQuota(name=n, namespace=draw(NAMES), hard=draw(st.dictionaries(QUOTA_KEYS, AMOUNTS, max_size=3)))
            for n in draw(st.lists(NAMES, unique=True, max_size=2))
        ),
        limit_ranges=tuple(
            LimitRange(
                name=n,
                namespace=draw(NAMES),
                default_requests=draw(AMOUNT_MAPS),
                minimum=draw(st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 5), max_size=2)),
                maximum=draw(st.dictionaries(st.sampled_from(RESOURCES), st.integers(10, 20), max_size=2)),
            )
            for n in draw(st.lists(NAMES, unique=True, max_size=2))
        ),
        admission_checks=draw(st.dictionaries(NAMES, st.sampled_from(["tenure.dev/card-healthy", "x"]), max_size=2)),
        fair_sharing=draw(
            maybe(
                st.sampled_from(
                    [
                        FairSharing(),
                        FairSharing(preemption_strategies=(ShareStrategy.LESS_THAN_INITIAL_SHARE,)),
                        FairSharing(preemption_strategies=(ShareStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)),
                    ]
                )
            )
        ),
        exclude_resource_prefixes=tuple(draw(st.lists(VALUES.filter(bool), unique=True, max_size=2))),
        transformations=tuple(
            Transformation(
                input=name,
                replace=draw(st.booleans()),
                multiply_by=draw(maybe(st.just("other.io/x"))),
                outputs=draw(
                    st.dictionaries(
                        st.sampled_from(RESOURCES), st.sampled_from(["1", "1Gi", "500m", "1e3"]), max_size=2
                    )
                ),
            )
            for name in draw(st.lists(st.sampled_from(RESOURCES), unique=True, max_size=2))
        ),
        quota_check=draw(st.sampled_from(QuotaCheckStrategy)),
        wait_for_pods_ready=draw(
            maybe(
                st.builds(
                    WaitForPodsReady,
                    timeout_s=st.one_of(st.floats(0.001, 1e6), st.integers(1, 10**6).map(float)),
                    backoff_base_s=st.integers(0, 1000).map(float),
                    backoff_max_s=st.integers(0, 10**6).map(float),
                    backoff_limit_count=maybe(st.integers(0, 100)),
                    requeuing_timestamp=st.sampled_from(["Eviction", "Creation"]),
                )
            )
        ),
    )


@settings(max_examples=60, deadline=None)
@given(policies())
def test_what_is_written_reads_back(policy: Policy):
    reading = read_policy([("dump.yaml", dump_policy(policy))])
    assert reading.policy == policy
    for name, flavors in policy.flavors.items():
        assert list(reading.policy.flavors[name].node_labels) == list(flavors.node_labels)


@settings(max_examples=15, deadline=None)
@given(policies())
def test_other_readers_of_yaml_see_text_where_there_is_text(policy: Policy):
    """PyYAML follows YAML 1.1 closely; a name that it read as a number would trouble `kubectl` too."""
    for tree in yaml.safe_load_all(dump_policy(policy)):
        if tree["kind"] != "Configuration":
            assert isinstance(tree["metadata"]["name"], str)


def test_the_order_of_flavors_is_kept():
    quota = {"cpu": Quota(nominal=1000)}
    rows = tuple(FlavorQuotas(flavor=n, resources=quota) for n in ("z", "a", "m"))
    queue = ClusterQueue(name="q", resource_groups=(ResourceGroup(covered_resources=("cpu",), flavors=rows),))
    text = dump_policy(Policy(cluster_queues={"q": queue}))
    assert read_policy([("f", text)]).policy.cluster_queues["q"] == queue


def test_an_empty_policy_is_an_empty_text():
    assert dump_policy(Policy()) == ""
