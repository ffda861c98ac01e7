"""EngineOptions: tenure's own document beside the policy, as strict as Kueue's."""

from __future__ import annotations

import pytest

from tenure.domain.errors import InvalidManifest
from tenure.domain.options import Ageing, EngineOptions, LivelockRule
from tenure.manifests.dump import dump_policy
from tenure.manifests.policy import read_policy

HEAD = "apiVersion: tenure.dev/v1\nkind: EngineOptions\n"
ALL = (
    HEAD
    + """spec:
  shrinkGangs: false
  minRuntime: 5m
  reserveAfter: 30m
  ageing: {every: 1h, step: 10, most: 100}
  livelock: {takes: 3, within: 90m}
"""
)
MINUTE = 60_000_000


def test_without_the_document_there_is_pure_kueue() -> None:
    assert read_policy([("a.yaml", "")]).policy.engine_options is None


def test_everything_is_read_and_written_again() -> None:
    policy = read_policy([("a.yaml", ALL)]).policy
    assert policy.engine_options == EngineOptions(
        shrink_gangs=False,
        min_runtime_us=5 * MINUTE,
        reserve_after_us=30 * MINUTE,
        ageing=Ageing(every_us=60 * MINUTE, step=10, most=100),
        livelock=LivelockRule(takes=3, within_us=90 * MINUTE),
    )
    assert read_policy([("b.yaml", dump_policy(policy))]).policy == policy


def test_an_empty_spec_is_the_default() -> None:
    policy = read_policy([("a.yaml", HEAD + "spec: {}\n")]).policy
    assert policy.engine_options == EngineOptions()
    assert read_policy([("b.yaml", dump_policy(policy))]).policy == policy


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        (HEAD, "spec", "required"),
        (HEAD + "spec: {minRuntimes: 5m}", "spec.minRuntimes", "minRuntime"),
        (HEAD + "spec: {minRuntime: 5}", "spec.minRuntime", "expected a duration"),
        (HEAD + "spec: {minRuntime: soon}", "spec.minRuntime", "soon"),
        (HEAD + "spec: {ageing: {every: 1h}}", "spec.ageing.most", "required"),
        (HEAD + "spec: {ageing: {every: 1ms, most: 3}}", "spec.ageing.every", "at least 1s would work"),
        (HEAD + "spec: {livelock: {takes: 1, within: 1h}}", "spec.livelock.takes", "2 to 1000 would work"),
        (ALL.replace("tenure.dev/v1", "v1"), "apiVersion", "tenure.dev/v1 would work"),
        (ALL + "---\n" + ALL, "", "an EngineOptions is already in a.yaml:1; keep one"),
    ],
)
def test_what_is_wrong_is_told_with_its_field(text: str, field: str, said: str) -> None:
    with pytest.raises(InvalidManifest) as refused:
        read_policy([("a.yaml", text)])
    (problem,) = refused.value.problems
    assert problem.field == field
    assert said in problem.message
