"""The policy that a first start writes."""

from __future__ import annotations

import pytest

from tenure.domain.policy import (
    LabelSelector,
    PreemptionPolicy,
    Quota,
    QuotaCheckStrategy,
)
from tenure.manifests.defaults import DefaultCard, default_policy
from tenure.manifests.policy import PolicyReading, read_policy

H200 = DefaultCard(flavor="nvidia-h200", shares=8, memory=141 * 10**9)
L4 = DefaultCard(flavor="nvidia-l4", shares=4, memory=24 * 2**30)


def reading(*cards: DefaultCard) -> PolicyReading:
    return read_policy(list(default_policy(cards).items()))


@pytest.mark.parametrize("cards", [(), (H200,), (H200, H200), (H200, L4)], ids=["none", "one", "two", "mixed"])
def test_it_reads_back_without_problems(cards: tuple[DefaultCard, ...]):
    assert reading(*cards).problems == ()


def test_general_owns_everything_and_large_model_may_borrow_one_share_and_all_memory():
    policy = reading(H200).policy
    general, large = policy.cluster_queues["general"], policy.cluster_queues["large-model"]
    assert list(policy.flavors) == ["nvidia-h200"]
    assert general.cohort == large.cohort == "card"
    assert general.namespace_selector == large.namespace_selector == LabelSelector()
    assert general.resource_groups[0].flavors[0].resources == {
        "nvidia.com/gpu": Quota(nominal=8),
        "tenure.dev/gpu-memory": Quota(nominal=141 * 10**9),
    }
    assert large.resource_groups[0].flavors[0].resources == {
        "nvidia.com/gpu": Quota(nominal=0, borrowing_limit=1),
        "tenure.dev/gpu-memory": Quota(nominal=0, borrowing_limit=141 * 10**9),
    }


def test_training_may_take_back_what_a_model_borrowed_and_a_model_takes_nothing():
    policy = reading(H200).policy
    general, large = policy.cluster_queues["general"].preemption, policy.cluster_queues["large-model"].preemption
    assert general.within_cluster_queue is PreemptionPolicy.LOWER_PRIORITY
    assert general.reclaim_within_cohort is PreemptionPolicy.LOWER_PRIORITY
    assert large.within_cluster_queue is PreemptionPolicy.NEVER
    assert large.reclaim_within_cohort is PreemptionPolicy.NEVER


def test_priorities_queues_and_the_default_class():
    policy = reading(H200).policy
    values = {name: c.value for name, c in policy.workload_priority_classes.items()}
    assert values == {"registry": 10000, "always-on": 8000, "training": 6000, "on-demand": 4000, "batch": 2000}
    assert policy.priority_classes["batch"].global_default
    assert policy.priority_classes["batch"].value == 2000
    assert {key: q.cluster_queue for key, q in policy.local_queues.items()} == {
        ("default", "default"): "general",
        ("default", "general"): "general",
        ("default", "large-model"): "large-model",
    }
    assert "default" in policy.namespaces
    assert policy.quota_check is QuotaCheckStrategy.IGNORE_UNDECLARED


def test_cards_of_one_model_are_one_flavor_and_summed():
    flavors = reading(H200, L4, H200).policy.cluster_queues["general"].resource_groups[0].flavors
    assert [(f.flavor, f.resources["nvidia.com/gpu"].nominal) for f in flavors] == [
        ("nvidia-h200", 16),
        ("nvidia-l4", 4),
    ]


def test_without_a_card_the_policy_is_the_same_with_nothing_to_give():
    policy = reading().policy
    quotas = policy.cluster_queues["general"].resource_groups[0].flavors[0].resources
    assert [q.nominal for q in quotas.values()] == [0, 0]
    assert set(policy.cluster_queues) == {"general", "large-model"}


def test_the_files_explain_themselves():
    for name, text in default_policy([H200]).items():
        assert text.startswith("# "), name
        assert "$" not in text, name
