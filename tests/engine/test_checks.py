"""Admission checks as a state machine, from the policy and the reservation alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.domain.policy import AdmissionCheckRef
from tenure.domain.workload import Admission, PodSetAssignment
from tenure.engine.checks import Answer, Checks, CheckState, Step
from tenure.testing.lab import policy

P, R, Y, X = CheckState.PENDING, CheckState.READY, CheckState.RETRY, CheckState.REJECTED


def _checks(*refs: AdmissionCheckRef, flavor: str = "card") -> Checks:
    plain = policy({"queues": {"q": {"owns": {"gpu": 4}}}})
    queue = replace(plain.cluster_queues["q"], admission_checks=refs)
    asked = replace(plain, cluster_queues={"q": queue}, admission_checks={"a": "x/a", "b": "x/b"})
    part = PodSetAssignment(name="main", flavors={"nvidia.com/gpu": flavor}, usage={"nvidia.com/gpu": 1}, count=1)
    return Checks.of(asked, Admission(cluster_queue="q", assignments=(part,)))


def test_without_checks_it_starts_at_once() -> None:
    assert _checks().step is Step.ADMIT


def test_a_check_that_is_bound_to_another_flavor_does_not_concern_it() -> None:
    refs = AdmissionCheckRef(name="a", on_flavors=("card", "spot")), AdmissionCheckRef(name="b", on_flavors=("spot",))
    assert _checks(*refs).controllers == {"a": "x/a"}
    assert _checks(*refs, flavor="spot").controllers == {"a": "x/a", "b": "x/b"}


@pytest.mark.parametrize(
    ("a", "b", "step"),
    [
        (P, P, Step.WAIT), (R, P, Step.WAIT), (R, R, Step.ADMIT), (R, Y, Step.RETRY), (Y, P, Step.RETRY),
        (Y, X, Step.DEACTIVATE), (P, X, Step.DEACTIVATE),
    ],
)  # fmt: skip
def test_what_follows_from_two_checks(a: CheckState, b: CheckState, step: Step) -> None:
    checks = _checks(AdmissionCheckRef(name="a"), AdmissionCheckRef(name="b"))
    assert checks.step is Step.WAIT
    checks.told("a", Answer(state=a, message="so", requeue_after_s=5))
    checks.told("b", Answer(state=b))
    assert checks.step is step
    assert ("a is" in str(checks)) is (a is not R)
    assert checks.requeue_after_s == (5 if a is Y else 0)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "stranger"]), st.sampled_from(list(CheckState))), max_size=12))
def test_only_the_latest_words_of_its_own_checks_count(said: list[tuple[str, CheckState]]) -> None:
    checks = _checks(AdmissionCheckRef(name="a"), AdmissionCheckRef(name="b"))
    last = {"a": P, "b": P}
    for name, state in said:
        checks.told(name, Answer(state=state))
        if name in last:
            last[name] = state
    states = set(last.values())
    assert (checks.step is Step.ADMIT) is (states == {R})
    assert (checks.step is Step.DEACTIVATE) is (X in states)
