"""What a door is handed: every field with every kind of value is refused by its name, or is a job that can be kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenure.control.submission import FIELDS, asked_of, environment_of, field_of
from tenure.domain.errors import InvalidRequest
from tenure.domain.ids import Instant
from tenure.manifests.rules import check_environment, check_spec
from tenure.manifests.wire import spec_from_json, spec_to_json

NOW = Instant(1_796_000_000_000_000)
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 1.5, float("nan"), float("inf"), 2**63, 10**400),
    *("", "x", "-5", "1e400", "NaN", "²", "٣", "\0", "\ud800", "\udcff", "ü" * 70_000, "now", "../../etc", "[" * 2000),
    *([], [None], [1], [""], ["x"], ["\0"], [[]], {}, {"": ""}, {"a": None}, {"a": 1}, {"a": "b"}, {"a": {"b": 1}}),
    *(
        "#!/bin/sh\ntrue\n",
        {"name": "a.sh", "text": "#!/bin/sh\n#SBATCH -J a\n"},
        {"name": 1, "text": "x"},
        {"name": "a.yaml", "text": "- ["},
        {"name": "\0", "text": "#!/bin/sh\n"},
    ),
)


def told(value: Any) -> str:
    return ascii(value)[:40]


@pytest.mark.parametrize("field", [*FIELDS, "no_such_field"])
def test_every_value_is_refused_by_name_or_can_be_kept_and_read_again(field: str):
    taken = 0
    for value in ODD:
        body = {"argv": ["true"], "cwd": "/tmp"} | {field: value}
        if field in ("script", "file"):
            del body["argv"]
        try:
            environment_of(body)
            asked = asked_of({k: v for k, v in body.items() if k != "environment"}, now=NOW, owner="ann")
            for spec in asked.specs:
                check_spec(spec)
        except InvalidRequest:
            continue
        for spec in asked.specs:
            taken += 1
            assert spec_from_json(json.loads(json.dumps(spec_to_json(spec)))) == spec, told(value)
    assert field == "no_such_field" or taken, "a field that takes nothing is none"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"output": ["x"]}, "output must be text"),
        ({"error": 7}, "error must be text"),
        ({"after": 7}, "after must be a list of texts"),
        ({"after": {"1": "x"}}, "after must be a list of texts"),
        ({"script_args": ["x"]}, "add them to argv"),
        ({"grace": "x"}, "a number of seconds"),
    ],
)
def test_what_has_the_wrong_type_is_told_which_would_be_right(body: dict[str, Any], words: str):
    with pytest.raises(InvalidRequest, match=words):
        asked_of({"argv": ["true"], "cwd": "/tmp"} | body, now=NOW, owner="ann")


@pytest.mark.parametrize(
    "variables",
    [{"A": 1}, {"A": None}, {"A": {"B": "c"}}, {"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "\0"}, {"A": "\ud800"}],
)
def test_an_environment_that_no_program_can_be_given_does_not_travel(variables: dict[str, Any]):
    with pytest.raises(InvalidRequest) as caught:
        environment_of({"environment": variables})
    assert str(caught.value.field).startswith("environment")


def test_an_environment_of_a_megabyte_travels():
    check_environment({f"V{n}": "x" * 100_000 for n in range(10)})


def test_no_time_limit_is_not_called_minutes():
    notes = [asked_of({"argv": ["true"], "cwd": "/", "time": t}, now=NOW, owner="a").specs[0].notes for t in (0, "7")]
    assert [note for (note,) in notes] == [
        "time 0 was read as no limit, as Slurm reads it",
        "time 7 was read as minutes, as Slurm reads a bare number",
    ]


def test_what_is_wrong_is_named_as_its_submitter_wrote_it():
    parts = ("min_processes", "time_limit_s", "logs.output", "env['A']", "name", "", None)
    assert [field_of(part) for part in parts] == ["gang", "time", "output", "env['A']", "name", "", None]
