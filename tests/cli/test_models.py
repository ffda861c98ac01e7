"""`tenure models` and `tenure model`: the list at 80 columns, waking and waiting for it, and advice."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tenure.cli.model_advice import lines

from .conftest import TENURE, Home, eventually

SERVER = [sys.executable, "-P", "-m", "tenure.testing.model_server", "--port", "{port}"]


def declare(home: Home, name: str, *knobs: str, **spec: Any) -> None:
    body = {"queueName": "large-model", "priorityClassName": "on-demand", "shares": 1, "gpuMemory": "1Gi"}
    body |= {"command": [*SERVER, *knobs]} | spec  # type: ignore[dict-item]
    document = {"apiVersion": "tenure.dev/v1", "kind": "Model", "metadata": {"name": name}, "spec": body}
    (home.path / "policy" / f"{name}.json").write_text(json.dumps(document))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("models") / "home")
    home.ok("up", "-d", "--card", "8x16Gi")
    try:
        declare(home, "assistant", "--load", "0.3", aliases=["default"], idleAfter="6h")
        declare(home, "other", queueName="large-model")
        declare(home, "broken", "--load", "0.1", "--die-loading", "3", queueName="default")
        home.ok("policy", "reload")
        yield home
    finally:
        home.ok("down")


def journal(home: Home, model: str, *, days: int = 7) -> None:
    """Somebody asks twice in each half hour, ten hours a day."""
    now = time.time()
    begins = [
        now - day * 86_400 - 36_000 + k * 1800 + late for day in range(days) for k in range(20) for late in (0, 720)
    ]
    rows = [
        {"at": b + 1, "model": model, "status": 200, "held_s": 0.0, "seconds": 1.0, "run": "1.1"}
        for b in sorted(begins)
    ]
    path = home.path / "gateway" / "requests.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def on_a_terminal(home: Home, *words: str, columns: int) -> str:
    """What a person would see."""
    ours, theirs = pty.openpty()
    env = {**home.env, "COLUMNS": str(columns), "TERM": "xterm"}
    process = subprocess.Popen([str(TENURE), *words], env=env, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 65536):
            said += chunk
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    return said.decode().replace("\r\n", "\n")


def test_the_list_fits_eighty_columns_and_says_why(lab: Home) -> None:
    first = lab.tenure("models", "wake", "assistant", "--wait")
    assert (first.code, first.out.startswith("assistant: ready (job ")) == (0, True)
    assert "assistant: queued" in first.err or "assistant: starting" in first.err
    lab.ok("models", "wake", "other")
    eventually(lambda: any(row["blocked_by"] == ["assistant"] for row in lab.json("models")))
    seen = on_a_terminal(lab, "models", columns=80)
    assert max(len(line) for line in seen.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()) <= 80
    assert "(held by assistant)" in " ".join(seen.split())
    assert "in 5h59m" in seen
    plain = lab.ok("models")
    assert plain.splitlines()[0].split() == ["NAME", "STATE", "JOB", "BUSY", "HELD", "WAKES", "ASKED", "SLEEPS"]
    assert "assistant" in lab.ok("models", "-o", "name").splitlines()
    assert "default" in lab.ok("models", "-o", "wide")
    rows = lab.json("models")
    assert {"name", "state", "job_id", "run_id", "reason", "in_flight", "held", "wakes", "last_inference_at", "sleeps_at"} <= set(rows[0])  # fmt: skip
    lab.ok("models", "sleep", "other")


def test_waiting_for_one_that_fails_is_1_and_says_why(lab: Home) -> None:
    answer = lab.tenure("models", "wake", "broken", "--wait")
    assert (answer.code, answer.out) == (1, "")
    assert "broken is not ready: failed: ServerEnded: its server ended by itself while it was loading (exited with code 3)" in answer.err  # fmt: skip


def test_waiting_for_one_that_is_put_to_sleep_ends(lab: Home) -> None:
    lab.ok("models", "wake", "assistant", "--wait")
    waiting: list[Any] = []
    thread = threading.Thread(target=lambda: waiting.append(lab.tenure("model", "wake", "other", "--wait")))
    thread.start()
    eventually(lambda: "queued" in lab.ok("models"))
    lab.ok("models", "sleep", "other")
    thread.join(20)
    assert (waiting[0].code, "other is not ready: asleep" in waiting[0].err) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("models", "wake", "asistant"), "there is no model 'asistant'; there is assistant, default, broken, other; did you mean assistant?"),
        (("model", "advise", "defualt"), "did you mean default?"),
        (("models", "wake"), "needs a name; there is assistant, broken, other"),
        (("models", "advice", "x"), "did you mean advise?"),
        (("models", "sleep", "other", "--wait"), "--wait goes with `models wake NAME`"),
        (("models", "--days", "3"), "--days goes with `models advise NAME`"),
        (("models", "advise", "other", "--days", "0"), "--days takes a number, more than 0 and at most 366, not '0'"),
        (("models", "advise", "other", "--windows", "5x"), "--windows '5x' is not a duration"),
        (("models", "advise", "other", "--plot", "/no/such/place.svg"), "--plot /no/such/place.svg: no such file or directory"),
    ],
)  # fmt: skip
def test_a_mistake_says_what_would_work(lab: Home, words: tuple[str, ...], said: str) -> None:
    answer = lab.tenure(*words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


def test_advice_is_a_table_two_curves_a_drawing_and_json(lab: Home, tmp_path: Path) -> None:
    for _ in range(3):
        lab.ok("models", "wake", "assistant", "--wait")
        lab.ok("models", "sleep", "assistant")
        eventually(lambda: not any(row["state"] == "draining" for row in lab.json("models")))
    journal(lab, "assistant")
    before = lab.json("models")
    said = lab.ok(
        "model", "advise", "default", "--second-of-waiting-is-worth", "30000", "--plot", str(tmp_path / "idle.svg")
    )
    assert max(len(line) for line in said.splitlines()) <= 80
    marked = [line for line in said.splitlines() if line.startswith(">")]
    assert marked[0].split()[1] == "20m"
    assert "█" in said
    assert "▒" in said
    assert "idleAfter: " in said
    answer = lab.json("models", "advise", "assistant", "--second-of-waiting-is-worth", "30000")
    assert answer["recommended"]["idle_after_s"] == 1200
    assert answer["wake"]["count"] >= 3
    assert [row["idle_after_s"] for row in answer["rows"] if row["now"]] == [6 * 3600]
    drawn = ElementTree.parse(tmp_path / "idle.svg").getroot()
    assert [path.get("style") for path in drawn.findall("{*}path")] == ["fill:none"] * 2, "curves, not areas"
    assert "recommended" in "".join(drawn.itertext())
    said = lines(answer | {"days": 0.01, "recommended": None})  # a day is not made up from minutes
    assert "in 14m" in said[0]
    assert not any("by the day" in line or "IDLE" in line for line in said)
    assert " ".join(said).endswith(f"{answer['reason']}.")
    tried = lab.json("models", "advise", "assistant", "--windows", "7m,90m", "--days", "2")
    assert [row["idle_after"] for row in tried["rows"]] == ["7m", "1h30m", "6h", "resident"]
    assert tried["days"] <= 2
    assert lab.json("models") == before, "nothing is changed by being asked about"


def test_little_traffic_is_no_ground_for_advice(lab: Home) -> None:
    said = lab.ok("models", "advise", "other")
    assert "too little is known to recommend anything: 0 requests of 20" in " ".join(said.split())
    assert ">" not in said
    assert "idleAfter:" not in said
