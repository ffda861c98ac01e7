"""Models as jobs: woken, ready when their own process says so, asleep when everything of theirs has left."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.control import verbs, views
from tenure.domain.events import EventKind

from .conftest import ME, House

SERVER = [sys.executable, "-P", "-m", "tenure.testing.model_server", "--port", "{port}"]


def declare(home: Path, name: str, *knobs: str, **spec: Any) -> None:
    """A Model document beside the policy; `spec` in the words of the document."""
    folder = home / "policy"
    folder.mkdir(parents=True, exist_ok=True)
    body = {"command": [*SERVER, *knobs], "queueName": "large-model", "priorityClassName": "on-demand"} | spec
    body = {"shares": 1, "gpuMemory": "1Gi"} | body
    document = {"apiVersion": "tenure.dev/v1", "kind": "Model", "metadata": {"name": name}, "spec": body}
    (folder / f"model-{name}.json").write_text(json.dumps(document))


@pytest.fixture
def models(tmp_path: Path) -> Iterator[Callable[..., House]]:
    """A house whose policy is the default one and these models."""
    house = House(tmp_path / "home")
    house.open()
    house.close()
    opened: list[House] = []

    def start() -> House:
        opened.append(house)
        return house.open(card=None)

    yield start
    if opened:
        house.close()


def model(house: House, name: str = "small") -> dict[str, Any]:
    return next(row for row in views.models(house.platform) if row["name"] == name)


def until(house: House, *states: str, name: str = "small", timeout: float = 15) -> dict[str, Any]:
    """The model once it is in one of these states: each change is told to whoever watches."""
    deadline = time.monotonic() + timeout
    while (row := model(house, name))["state"] not in states:
        assert time.monotonic() < deadline, row
        time.sleep(0.02)
    return row


def ask(row: dict[str, Any], path: str = "/pid") -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{row['port']}{path}", timeout=5) as answer:
        return json.load(answer)


def test_a_model_wakes_is_a_job_and_sleeps(models: Callable[..., House], tmp_path: Path) -> None:
    declare(tmp_path / "home", "small", aliases=["default"])
    house = models()
    assert model(house)["state"] == "asleep"
    verbs.wake(house.platform, "default", caller=ME, cause="a test")
    row = until(house, "ready")
    job = views.show(house.platform, row["job_id"])
    assert (job["state"], job["name"], job["project"], job["priority_class"]) == (
        "running",
        "small",
        "models",
        "on-demand",
    )
    assert row["run_id"] == f"{job['id']}.1"
    pid = ask(row)["pid"]
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert f"CUDA_CACHE_PATH={tmp_path}/home/caches/small/cuda".encode() in environment
    verbs.sleep(house.platform, "small", caller=ME)
    row = until(house, "asleep")
    assert not Path(f"/proc/{pid}").exists()
    assert (row["port"], row["job_id"]) == (None, None)
    woken = [e for e in house.platform.ledger.events(kinds=[EventKind.MODEL_WOKEN])]
    assert [(e.data["cause"], e.data["by"]) for e in woken] == [("a test", "tester")]
    told = [e.data["state"] for e in house.platform.ledger.events(kinds=[EventKind.MODEL_CHANGED])]
    assert told[-3:] == ["ready", "draining", "asleep"]
