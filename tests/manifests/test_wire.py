"""A job as JSON and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.domain.errors import InvalidRequest
from tenure.domain.job import ArraySpec, Dependency, DependencyKind, GangPolicy, JobSpec, LogSpec, StopSignal
from tenure.domain.policy import LabelRequirement, Toleration
from tenure.domain.workload import NodeSelectorTerm
from tenure.manifests.wire import spec_from_json, spec_to_json

TEXT = st.text(max_size=8)
MAPS = st.dictionaries(TEXT, TEXT, max_size=2)
NUMBERS = st.integers(0, 2**63 - 1)
SECONDS = st.floats(0, 1e9) | st.integers(0, 1000).map(float)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
TERMS = st.builds(
    NodeSelectorTerm,
    expressions=st.lists(
        st.builds(LabelRequirement, key=TEXT, operator=TEXT, values=st.lists(TEXT, max_size=2).map(tuple)), max_size=2
    ).map(tuple),
)


def some(strategy):
    return st.none() | strategy


def tuples(strategy):
    return st.lists(strategy, max_size=3).map(tuple)


SPECS = st.builds(
    JobSpec,
    name=TEXT,
    argv=tuples(TEXT),
    script=some(TEXT),
    script_args=tuples(TEXT),
    workdir=TEXT,
    env=MAPS,
    env_digest=some(TEXT),
    project=TEXT,
    namespace=TEXT,
    owner=TEXT,
    queue=some(TEXT),
    priority_class=some(TEXT),
    shares=NUMBERS,
    whole=st.booleans(),
    gpu_memory=NUMBERS,
    cpus=NUMBERS,
    memory=NUMBERS,
    requests=st.dictionaries(TEXT, NUMBERS, max_size=2),
    node_selector=MAPS,
    affinity_terms=tuples(TERMS),
    tolerations=tuples(st.builds(Toleration, key=TEXT, value=TEXT)),
    processes=NUMBERS,
    min_processes=some(NUMBERS),
    gang=st.booleans(),
    policy=st.sampled_from(GangPolicy),
    completions=some(NUMBERS),
    indexed=st.booleans(),
    backoff_limit=NUMBERS,
    tasks=NUMBERS,
    array=some(st.builds(ArraySpec, indices=tuples(NUMBERS), limit=some(NUMBERS))),
    array_index=some(NUMBERS),
    after=tuples(st.builds(Dependency, job=TEXT, kind=st.sampled_from(DependencyKind))),
    begin_at=some(NUMBERS),
    suspended=st.booleans(),
    time_limit_s=some(SECONDS),
    active_deadline_s=some(SECONDS),
    grace_s=SECONDS,
    stop_signal=some(st.builds(StopSignal, signal=TEXT, before_s=SECONDS, batch_only=st.booleans())),
    requeue=st.booleans(),
    window=st.booleans(),
    including_resident=st.booleans(),
    logs=st.builds(LogSpec, output=some(TEXT), error=some(TEXT), append=st.booleans()),
    sbatch=st.booleans(),
    labels=MAPS,
    notes=tuples(TEXT),
    fingerprint=st.dictionaries(TEXT, JSON, max_size=2),
)


@settings(max_examples=60, deadline=None)
@given(SPECS, st.booleans())
def test_a_job_survives_the_wire(spec: JobSpec, full: bool):
    text = json.dumps(spec_to_json(spec, full=full))
    assert spec_from_json(json.loads(text)) == spec


def test_every_field_is_drawn_by_the_property_above():
    """A new field of JobSpec must take part in the round trip."""
    assert set(spec_to_json(JobSpec(name=""), full=True)) == set(JobSpec.__dataclass_fields__)
    assert set(SPECS.wrapped_strategy.kwargs) == set(JobSpec.__dataclass_fields__)  # type: ignore[attr-defined]


def test_defaults_are_left_out():
    assert spec_to_json(JobSpec(name="a", argv=("x",))) == {"name": "a", "argv": ["x"]}
    assert spec_to_json(JobSpec(name="a", logs=LogSpec(append=True)))["logs"] == {"append": True}


def test_file_names_that_are_not_utf8_survive():
    spec = JobSpec(name="a", argv=("x\udcff",))
    assert spec_from_json(json.loads(json.dumps(spec_to_json(spec)))) == spec


@pytest.mark.parametrize(
    ("data", "field", "words"),
    [
        ({"name": "a", "sharse": 1}, "sharse", 'did you mean "shares"?'),
        ({"name": "a", "array": {"indexes": [1]}}, "array.indexes", 'did you mean "indices"?'),
        ({}, "name", "required"),
        ({"name": "a", "array": {}}, "array.indices", "required"),
        ({"name": 5}, "name", "expected text, got int"),
        ({"name": None}, "name", "got null"),
        ({"name": "a", "shares": "1"}, "shares", "expected a whole number, got text"),
        ({"name": "a", "shares": True}, "shares", "got true or false"),
        ({"name": "a", "shares": 1.0}, "shares", "got float"),
        ({"name": "a", "shares": 2**64}, "shares", "64 bits"),
        ({"name": "a", "gang": 1}, "gang", "expected true or false"),
        ({"name": "a", "grace_s": "x"}, "grace_s", "expected a number"),
        ({"name": "a", "grace_s": float("nan")}, "grace_s", "out of range"),
        ({"name": "a", "grace_s": 10**400}, "grace_s", "out of range"),
        ({"name": "a", "argv": "ls"}, "argv", "expected a list, got text"),
        ({"name": "a", "argv": [1]}, "argv[0]", "expected text"),
        ({"name": "a", "env": []}, "env", "expected an object, got a list"),
        ({"name": "a", "env": {"A": 1}}, "env['A']", "expected text"),
        ({"name": "a", "policy": "some"}, "policy", "one of all, each"),
        ({"name": "a", "after": [{"job": "1", "kind": "x"}]}, "after[0].kind", "afterok"),
        ([], None, "expected an object"),
    ],
)
def test_what_is_wrong_is_refused_with_its_path(data: object, field: str | None, words: str):
    with pytest.raises(InvalidRequest) as caught:
        spec_from_json(data)
    assert caught.value.field == field
    assert words in caught.value.message


def test_nesting_without_end_is_refused():
    data: object = "x"
    for _ in range(100_000):
        data = [data]
    with pytest.raises(InvalidRequest, match="too deep"):
        spec_from_json({"name": "a", "fingerprint": {"x": data}})
    while isinstance(data, list):  # take it apart from the outside, or freeing it recurses
        data = data[0]
