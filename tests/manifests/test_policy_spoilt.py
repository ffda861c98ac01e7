"""A policy with one line spoilt is still a policy, or refused with a place: nearly right is where readers fall over."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.domain.errors import InvalidManifest, Problem
from tenure.domain.policy import Policy
from tenure.manifests.defaults import DefaultCard, default_policy
from tenure.manifests.dump import dump_policy
from tenure.manifests.policy import read_policy

from .test_policy_reading import CONFIGURATION, FULL_QUEUE

DEFAULT = "---\n".join(default_policy([DefaultCard(flavor="f", shares=8, memory=2**34)]).values())
COHORT = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata:\n  name: c\nspec:\n  parentName: p\n  fairSharing:\n    weight: 2\n"
SMALL = (
    "apiVersion: v1\nkind: ResourceQuota\nmetadata:\n  name: r\nspec:\n  hard:\n    cpu: 1\n---\n"
    "apiVersion: v1\nkind: LimitRange\nmetadata:\n  name: r\nspec:\n  limits:\n  - type: Container\n    min:\n      cpu: 1\n"
)
VALUES = [
    "", "null", "[]", "{}", "[[]]", "{a: b}", "[{}]", "[null]", "5", "-1", "x", "true", "1.5", "[5]", "{a: {}}", '"\\0"', "1e999", "[x, x]",
    "{name: x}", "[{name: x}, {name: x}]", "-0", "1e-9",
]  # fmt: skip


def read(text: str) -> tuple[Policy | None, Sequence[Problem]]:
    try:
        reading = read_policy([("f", text)])
    except InvalidManifest as refused:
        return None, refused.problems
    return reading.policy, reading.problems


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from([FULL_QUEUE, CONFIGURATION, DEFAULT, COHORT, SMALL]))
def test_a_policy_with_any_line_spoilt_is_a_policy_or_refused_with_a_place(data: st.DataObject, text: str):
    lines = text.split("\n")
    at = data.draw(st.integers(0, len(lines) - 1))
    line = lines[at]
    indent = line[: len(line) - len(line.lstrip())]
    key = line.strip().split(":")[0]
    lines[at] = data.draw(
        st.sampled_from(
            [f"{indent}{key}: {v}" for v in VALUES] + ["", f"{indent}x", f"{line}:", f" {line}", f"{line}\n{line}"]
        )
    )
    policy, problems = read("\n".join(lines))
    assert all(p.file == "f" and p.message and p.line is not None for p in problems)
    if policy is not None:
        assert read_policy([("d", dump_policy(policy))]).policy == policy


def test_the_whole_policies_are_sound():
    for text in (FULL_QUEUE, CONFIGURATION, DEFAULT, COHORT, SMALL):
        read_policy([("f", text)])


@pytest.mark.parametrize("text", ["metadata: {}", "spec:", "- a", "5"])
def test_fragments_are_refused(text: str):
    with pytest.raises(InvalidManifest):
        read_policy([("f", text)])
