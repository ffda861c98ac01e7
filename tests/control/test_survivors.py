"""A server is killed and its workers live on: the model is not asleep, its share stays held, and they are named and ended."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.control import verbs, views
from tenure.domain.events import EventKind

from .conftest import ME, House
from .test_models import SERVER, ask, declare, model, models, until

__all__ = ["models"]  # the fixture

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"


def with_workers(folder: Path) -> list[str]:
    """A server with two workers: one that ignores SIGTERM, and one that has called setsid as well."""
    worker = f"{shlex.quote(sys.executable)} -S -c {shlex.quote(DEAF)}"
    serve = " ".join(shlex.quote(word) for word in SERVER)
    return ["sh", "-c", f"{worker} & echo $! > {folder}/deaf; setsid {worker} & echo $! > {folder}/apart; exec {serve}"]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


@pytest.mark.parametrize("how", ["killed", "preempted"])
def test_workers_that_outlive_their_server_are_named_and_ended(
    models: Callable[..., House], tmp_path: Path, how: str
) -> None:
    folder = tmp_path / "pids"
    folder.mkdir()
    declare(tmp_path / "home", "small", command=with_workers(folder), stopTimeout="3s")
    house = models()
    verbs.wake(house.platform, "small", caller=ME)
    row = until(house, "ready")
    workers = [int((folder / name).read_text()) for name in ("deaf", "apart")]
    assert all(map(alive, workers))
    watch = f"for p in {' '.join(map(str, workers))}; do kill -0 $p 2>/dev/null && echo there; done; echo looked"
    if how == "killed":
        os.kill(ask(row)["pid"], signal.SIGKILL)
        after = house.gpu("sh", "-c", watch, shares=8)
    else:
        after = house.gpu("sh", "-c", watch, shares=8, priority="training")

    def named() -> bool:
        found, told = model(house), views.why(house.platform, row["job_id"])["message"]
        if any(map(alive, workers)):
            assert found["state"] not in ("asleep", "failed", "queued"), "its share would be given away"
        return all(f"(pid {pid})" in found["message"] for pid in workers) and (
            not all(map(alive, workers)) or all(f"-c {DEAF[:20]}" in told and f"(pid {pid})" in told for pid in workers)
        )

    house.until("both are named in the table, and by why for as long as they live", named)
    if how == "preempted":
        line = house.platform.ledger.events(job_id=row["job_id"], kinds=[EventKind.JOB_SURVIVORS])[0]
        assert sorted(one["pid"] for one in line.data["survivors"]) == sorted(workers)
    house.wait(after)
    assert house.out(after) == "looked\n", "its share was free when they had left, and not before"
    assert not any(map(alive, workers))
    if how == "killed":
        assert until(house, "failed")["job_id"] is None
        assert all(f"(pid {pid})" in model(house)["message"] for pid in workers)
    house.check_laws()
