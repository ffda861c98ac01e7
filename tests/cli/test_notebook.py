"""`tenure notebook`: an address with a token, an end when nobody is there, and none while somebody is.

The stand-in speaks the few calls of Jupyter's REST API that the watcher makes; docs/notebooks.md says what a real
JupyterLab was seen to do.
"""

from __future__ import annotations

import json
import stat
import threading
import urllib.error
import urllib.request
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from .conftest import Home, eventually

LAB = Path(__file__).with_name("stand_in_lab")
BUSY = [{"id": "k1", "execution_state": "busy", "last_activity": "2026-11-29T00:00:00Z"}]
RESTING = [{"id": "k1", "execution_state": "idle", "last_activity": "2026-11-29T00:00:00Z"}]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "my work"
    folder.mkdir()
    (folder / "thesis.ipynb").write_text("{}")
    return folder


def state(work: Path, **paths: Any) -> None:
    part = work / "state.part"
    part.write_text(json.dumps({f"/api/{name}": value for name, value in paths.items()}))
    part.rename(work / "state.json")


def start(home: Home, work: Path, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        home.ok("notebook", "-o", "json", "--program", str(LAB), "--workdir", str(work), *words)
    )
    return found


def notes(home: Home, job: str) -> list[str]:
    history = home.json("why", job)["history"]
    return [event["message"] for event in history if event["kind"] == "JobNoted"]


def asks(url: str, token: str) -> int:
    where = urlsplit(url)
    request = urllib.request.Request(f"http://{where.netloc}/api/kernels", headers={"Authorization": f"token {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_an_address_with_a_token_and_a_job_on_demand(home: Home, work: Path) -> None:
    about = start(home, work, "--gpu-memory", "2Gi", "--name", "lab")
    job = home.json("show", about["job_id"])
    assert (job["state"], job["priority_class"], job["name"]) == ("running", "on-demand", "lab")
    assert (job["shares"], job["gpu_memory"]) == (1, 2 << 30)
    token = parse_qs(urlsplit(about["url"]).query)["token"][0]
    assert (asks(about["url"], token), asks(about["url"], "guessed")) == (200, 403)
    kept = home.path / "runs" / about["run_id"] / "notebook.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert token not in json.dumps(job) + home.ok("logs", about["job_id"]) + home.ok(
        "logs", "--stderr", about["job_id"]
    )
    assert home.ok("notebook", about["job_id"]).strip() == about["url"]
    home.ok("cancel", about["job_id"])
    assert home.until(about["job_id"], "ended")["outcome"] == "cancelled"
    assert home.tenure("notebook", about["job_id"]).code == 1


def test_it_warns_stops_when_idle_and_keeps_the_work(home: Home, work: Path) -> None:
    about = start(home, work, "--idle", "1s")
    ended = home.until(about["job_id"], "ended")
    assert (ended["outcome"], ended["exit_code"]) == ("completed", 0)
    said = home.ok("logs", "--stderr", about["job_id"])
    assert "stops in" in said
    assert "were idle for 1 s" in said
    warned, stopped = notes(home, about["job_id"])
    assert "stops in" in warned
    assert "the files stay" in stopped
    assert (work / "thesis.ipynb").exists()


def test_a_running_cell_is_not_idle_however_long(home: Home, work: Path) -> None:
    state(work, kernels=BUSY)
    about = start(home, work, "--idle", "1s")
    waited = home.tenure("wait", "--timeout", "1.6s", about["job_id"])
    assert waited.code == 124
    assert notes(home, about["job_id"]) == []
    state(work, kernels=RESTING)
    assert home.until(about["job_id"], "ended")["outcome"] == "completed"


def test_a_terminal_that_is_typed_in_is_not_idle(home: Home, work: Path) -> None:
    enough = threading.Event()

    def types() -> None:
        for n in count():
            state(work, kernels=RESTING, terminals=[{"name": "1", "last_activity": f"key {n}"}])
            if enough.wait(0.2):
                return

    somebody = threading.Thread(target=types)
    somebody.start()
    try:
        about = start(home, work, "--idle", "1.5s")
        assert home.tenure("wait", "--timeout", "3s", about["job_id"]).code == 124
    finally:
        enough.set()
        somebody.join()
    assert home.until(about["job_id"], "ended")["outcome"] == "completed"


def test_what_computes_silently_is_not_idle(home: Home, work: Path) -> None:
    (work / "state.json").write_text('{"compute": true}')
    about = start(home, work, "--idle", "1s")
    assert home.tenure("wait", "--timeout", "1.6s", about["job_id"]).code == 124
    home.ok("cancel", about["job_id"])
    home.until(about["job_id"], "ended")


def test_the_next_attempt_has_the_same_address(home: Home, work: Path) -> None:
    about = start(home, work, "--gpu-memory", "2Gi")
    training = home.submit("--priority", "training", "--shares", "8", "--gpu-memory", "16Gi", "--", "true")
    assert home.until(training, "ended")["outcome"] == "completed"
    eventually(lambda: home.json("show", about["job_id"])["run_id"] == f"{about['job_id']}.2")
    again = json.loads(home.ok("notebook", "-o", "json", about["job_id"]))
    assert (again["url"], again["run_id"]) == (about["url"], f"{about['job_id']}.2")


def test_what_is_missing_or_dies_is_told(home: Home, work: Path) -> None:
    missing = home.tenure("notebook", "--program", "no-such-lab")
    assert missing.code == 127
    assert "pip install jupyterlab" in missing.err
    (work / "state.json").write_text('{"die": true}')
    dies = home.tenure("notebook", "--program", str(LAB), "--workdir", str(work))
    assert dies.code == 1
    assert "ended before it answered" in dies.err
    assert home.tenure("notebook", "--idle", "soon", "--program", str(LAB)).code == 2


@pytest.mark.parametrize(
    "words", [("--", "sleep", "60"), ("--hold", "--", "true"), ("--array", "1-2", "--hold", "--", "true")], ids=str
)
def test_a_job_that_is_no_notebook_is_not_waited_for(home: Home, words: tuple[str, ...]) -> None:
    """It has no address, however long one waits: whether it runs, waits or is many."""
    job = home.submit(*words)
    answer = home.tenure("notebook", job)
    assert (answer.code, answer.out) == (2, "")
    assert "is no notebook" in answer.err
    home.ok("cancel", job)
