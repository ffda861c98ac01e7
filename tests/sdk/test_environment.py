"""The machine and the interpreter, without secrets and without cost."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import time

import pytest

from tenure.sdk.environment import environment, machine, nvml, packages, variables


def test_the_machine_is_named_down_to_its_card() -> None:
    value = machine()
    assert value["kernel"] == platform.release()
    assert value["cpus"] == len(os.sched_getaffinity(0))
    assert isinstance(value["memory_bytes"], int)
    assert value["memory_bytes"] == pytest.approx(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), rel=0.01)
    assert json.loads(json.dumps(value)) == value
    if os.path.exists("/proc/driver/nvidia/version"):
        assert value["driver"]
        assert value["cards"]
    else:
        assert value["cards"] == []
        assert value["card"] == "none"
        assert nvml() == {}


def test_after_the_first_time_it_costs_nothing() -> None:
    machine()
    best = 1.0
    for _ in range(10):
        begin = time.perf_counter()
        machine()
        best = min(best, time.perf_counter() - begin)
    assert best < 0.001


def test_a_declared_card_is_called_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_CARD", "declared")
    assert machine()["card"] == "declared"
    machine()["card"] = "changed by a caller"
    assert machine()["card"] == "declared"


def test_packages_are_those_that_the_standard_library_finds() -> None:
    expected = {
        str(found.metadata["Name"]).lower().replace("-", "_").replace(".", "_"): found.version
        for found in importlib.metadata.distributions()
    }
    assert {
        name.lower().replace("-", "_").replace(".", "_"): version for name, version in packages().items()
    } == expected


def test_the_interpreter_is_there_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("NCCL_SECRET_TOKEN", "hush")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    value = environment()
    assert value["python"]["version"] == platform.python_version()  # type: ignore[index]
    assert variables()["OMP_NUM_THREADS"] == "3"
    assert "hush" not in json.dumps(value)
