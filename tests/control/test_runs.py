"""Records become rows: of jobs, of experiments started by hand, of runs that went quiet and came back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.control import views
from tenure.domain.errors import NotFound
from tenure.sdk.record import read_record

from .conftest import House

STUDY = """
import os, sys, time, tenure
from dataclasses import dataclass

@dataclass(frozen=True)
class Spec:
    steps: int = 3
    rest: float = 0.0
    until: str = ""

@tenure.study(quiet_after_s=1.0)
def counting(run: tenure.Run, spec: Spec) -> None:
    for step in range(spec.steps):
        run.log(step=step, loss=1.0 / (step + 1))
        print("step", step, flush=True)
        run.sleep(spec.rest)
        if spec.until and os.path.exists(spec.until):
            break
    run.result(total=spec.steps)

counting.main()
"""


@pytest.fixture
def study(tmp_path: Path) -> list[str]:
    (tmp_path / "counting.py").write_text(STUDY)
    return [sys.executable, str(tmp_path / "counting.py")]


def test_a_study_under_the_platform_has_one_record_with_everything(house: House, study: list[str]):
    job = house.submit(*study, "--steps", "4", project="numbers")
    house.wait(job)
    row = house.until(
        "metrics are read too",
        lambda: next((r for r in views.runs(house.platform)["items"] if r["results"] == {"total": 4}), None),
    )
    assert (row["job_id"], row["project"], row["outcome"]) == (job, "numbers", "completed")
    run = views.run(house.platform, f"{job}.1")
    assert run["config"]["steps"] == 4
    assert run["metrics"]["loss"]["count"] == 4
    assert run["environment"]["card"]
    house.until(
        "the row has them",
        lambda: house.platform.ledger.run(f"{job}.1").summary.get("metrics", {}).get("loss", {}).get("count") == 4,
    )


def test_a_run_started_by_hand_is_listed_and_compared(house: House, study: list[str]):
    env = {**os.environ, "TENURE_HOME": str(house.home)}
    subprocess.run([*study, "--steps", "2"], env=env, check=True, capture_output=True)
    by_hand = house.until(
        "the run by hand is listed", lambda: next((r for r in views.runs(house.platform)["items"]), None)
    )
    assert (by_hand["job_id"], by_hand["outcome"], by_hand["results"]) == (None, "completed", {"total": 2})
    job = house.submit(*study, "--steps", "4")
    house.wait(job)
    compared = views.diff(house.platform, by_hand["run_id"], f"{job}.1")
    assert json.dumps(compared).count('"steps"') >= 1
    with pytest.raises(NotFound):
        views.run(house.platform, "../../etc")


def test_a_quiet_run_is_failed_and_heals_when_it_speaks_again(house: House, study: list[str]):
    """Frozen is not dead: its share stays taken, its record says what is known, and a late word is believed."""
    gate = house.gate()
    job = house.submit(*study, "--steps", "100000", "--rest", "0.05", "--until", str(gate.file))
    house.wait_out(job, "step 3")
    members = [json.loads(x) for x in (house.run_dir(job) / "supervisor.jsonl").read_text().splitlines()]
    pid = next(m["pid"] for m in members if m["kind"] == "member")
    os.kill(pid, signal.SIGSTOP)
    try:
        house.until("the reaper gives it up", lambda: read_record(house.run_dir(job)).outcome == "failed")
        reaped = read_record(house.run_dir(job))
        assert reaped.closed is not None
        assert (reaped.closed["by"], reaped.closed["reason"]) == ("reaper", "Quiet")
        assert house.show(job)["state"] == "running"
    finally:
        gate.open()
        os.kill(pid, signal.SIGCONT)
    assert house.wait(job)["outcome"] == "completed"
    healed = read_record(house.run_dir(job))
    assert (healed.outcome, healed.healed) == ("completed", True)
    kinds = house.until(
        "both are in the diary",
        lambda: (
            (k := {str(e.kind) for e in house.platform.ledger.events(limit=1000)}) >= {"RunReaped", "RunHealed"} and k
        ),
    )
    assert "RunHealed" in kinds


def test_what_is_not_open_any_more_is_not_remembered(house: House, study: list[str]):
    """Jobs that measured something and that said nothing, a run by hand that was killed, and its folder taken away."""
    jobs = [house.submit(*study, "--steps", "4", "--rest", "0.3"), house.submit("sleep", "1.2")]
    env = {**os.environ, "TENURE_HOME": str(house.home)}
    by_hand = subprocess.Popen([*study, "--steps", "1000", "--rest", "0.05"], env=env, stdout=subprocess.DEVNULL)
    try:
        run = house.until(
            "the run by hand is listed",
            lambda: next((r["run_id"] for r in views.runs(house.platform)["items"] if r["job_id"] is None), None),
        )
        for job in jobs:
            house.wait(job)
    finally:
        by_hand.kill()
        by_hand.wait()
    directory = house.home / "runs" / run
    house.until("the reaper gives it up", lambda: read_record(directory).outcome == "failed")
    sweeper = house.platform.rounds._sweeper
    house.until("nothing is looked at every second any more", lambda: sweeper.rests)
    shutil.rmtree(directory)
    names = [name for name, kept in vars(sweeper).items() if isinstance(kept, dict | set)]
    assert names, "this looks at the wrong thing"

    def kept() -> list[str]:
        house.platform.rounds.look_soon()
        return [name for name in names if vars(sweeper)[name]]

    house.until("nothing is left", lambda: not kept())
