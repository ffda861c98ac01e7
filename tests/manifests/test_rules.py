"""What every job must satisfy, whichever way it came in."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.domain.errors import InvalidRequest
from tenure.domain.ids import Instant
from tenure.domain.job import ArraySpec, GangPolicy, JobSpec, LogSpec, StopSignal
from tenure.manifests.rules import MAX_ENV_STRING, check_spec


def job(**fields: Any) -> JobSpec:
    return JobSpec(**{"name": "j", "argv": ("true",), **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"shares": 1, "gpu_memory": 2**30},
        {"whole": True, "gpu_memory": 2**30},
        {"name": '训练 "x" $(rm) \n\x1b[0m'},  # control characters are a name's own business
        {"argv": (), "script": "#!/bin/sh\ntrue\n"},
        {"processes": 4, "min_processes": 4, "gang": True},
        {"processes": 2, "policy": GangPolicy.EACH, "completions": 5},
        {"array": ArraySpec(indices=(0, 99_999), limit=1)},
        {"env": {"A": "x" * (MAX_ENV_STRING - 2)}},
        {"argv": ("true", "x\udcff", "")},
        {"time_limit_s": 0.5, "grace_s": 0.0},
        {"begin_at": Instant(0)},
        {"stop_signal": StopSignal(signal="USR1")},
    ],
    ids=lambda f: ",".join(f) or "plain",
)
def test_taken(fields: dict[str, Any]):
    check_spec(job(**fields))


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"shares": 1}, "gpu_memory", "--gpu-memory 8Gi"),
    ({"whole": True}, "gpu_memory", "--gpu-memory 8Gi"),
    ({"gpu_memory": 1}, "shares", "--shares 1"),
    ({"argv": ()}, "argv", "nothing to run"),
    ({"script": "#!/bin/sh\n"}, "argv", "not both"),
    ({"argv": ("",)}, "argv[0]", "empty"),
    ({"argv": (), "script": "echo"}, "script", "#!/bin/bash"),
    ({"name": ""}, "name", "empty"),
    ({"name": "x" * 1001}, "name", "at most 1000"),
    ({"name": "a\0b"}, "name", "NUL"),
    ({"argv": ("a", "b\0")}, "argv[1]", "NUL"),
    ({"workdir": "\0"}, "workdir", "NUL"),
    ({"labels": {"a": "\0"}}, "labels['a']", "NUL"),
    ({"logs": LogSpec(output="\0")}, "logs.output", "NUL"),
    ({"queue": ""}, "queue", "empty"),
    ({"namespace": ""}, "namespace", "empty"),
    ({"argv": ("x" * (MAX_ENV_STRING + 1),)}, "argv[0]", "131072 bytes"),
    ({"env": {"A": "x" * MAX_ENV_STRING}}, "env['A']", "put it in a file"),
    ({"env": {"A": "ü" * 65_535}}, "env['A']", "131072 bytes"),
    ({"env": {"": "x"}}, "env['']", "not a variable's name"),
    ({"env": {"A=B": "x"}}, "env['A=B']", "not a variable's name"),
    ({"env": {"A": "\0"}}, "env['A']", "NUL"),
    ({"shares": -1}, "shares", "negative"),
    ({"cpus": -1}, "cpus", "negative"),
    ({"memory": 2**63}, "memory", "out of range"),
    ({"requests": {"x": -1}}, "requests['x']", "negative"),
    ({"backoff_limit": -1}, "backoff_limit", "negative"),
    ({"processes": 0}, "processes", "at least 1"),
    ({"processes": 10_001}, "processes", "at most 10000"),
    ({"tasks": 0}, "tasks", "at least 1"),
    ({"processes": 2, "min_processes": 3}, "min_processes", "--gang N:MIN"),
    ({"min_processes": 0}, "min_processes", "at least 1"),
    ({"completions": 2}, "completions", "policy each"),
    ({"policy": GangPolicy.EACH, "completions": 0}, "completions", "at least 1"),
    ({"argv": (), "script": "#!x", "sbatch": True, "processes": 2}, "processes", "--ntasks"),
    ({"requests": {"nvidia.com/gpu": 1}}, "requests['nvidia.com/gpu']", "--shares"),
    ({"requests": {"tenure.dev/gpu-memory": 0}}, "requests['tenure.dev/gpu-memory']", "--gpu-memory"),
    ({"requests": {"cpu": 1}}, "requests['cpu']", "--cpus"),
    ({"argv": (), "script": "#!/bin/sh\r\ntrue\r\n"}, "script", "dos2unix"),
    ({"project": "p" * 1001}, "project", "at most 1000"),
    ({"workdir": "/" + "ü" * 2048}, "workdir", "4097 bytes"),
    ({"logs": LogSpec(output="x" * 4096)}, "logs.output", "at most 4095"),
    ({"name": "\ud800"}, "name", "surrogate"),
    ({"argv": ("a", "\ude00")}, "argv[1]", "surrogate"),
    ({"env": {"A": "\ud800"}}, "env['A']", "surrogate"),
    ({"labels": {"a": "\udfff"}}, "labels['a']", "surrogate"),
    ({"grace_s": 1e21}, "grace_s", "a hundred years"),
    ({"array": ArraySpec(indices=())}, "array", "1-10"),
    ({"array": ArraySpec(indices=(100_000,))}, "array", "99999"),
    ({"array": ArraySpec(indices=(1, 1))}, "array", "twice"),
    ({"array": ArraySpec(indices=(1,), limit=0)}, "array", "at least 1"),
    ({"array": ArraySpec(indices=(1,)), "array_index": 1}, "array_index", "by the platform"),
    ({"time_limit_s": 0.0}, "time_limit_s", "more than 0"),
    ({"time_limit_s": float("inf")}, "time_limit_s", "no limit"),
    ({"grace_s": -1.0}, "grace_s", "too short"),
    ({"begin_at": Instant(2**62)}, "begin_at", "calendar"),
    ({"stop_signal": StopSignal(signal="x y")}, "stop_signal", "USR1"),
    ({"stop_signal": StopSignal(signal="HELLO")}, "stop_signal", "'HELLO' is no signal"),
    ({"stop_signal": StopSignal(signal="65")}, "stop_signal", "USR1"),
    ({"stop_signal": StopSignal(before_s=-1.0)}, "stop_signal", "65535"),
]


@pytest.mark.parametrize(("fields", "field", "words"), REFUSED, ids=[f"{f}:{w[:12]}" for _, f, w in REFUSED])
def test_refused(fields: dict[str, Any], field: str, words: str):
    with pytest.raises(InvalidRequest) as caught:
        check_spec(job(**fields))
    assert caught.value.field == field
    assert words in caught.value.message
