"""An edit between submit and start is shown; what jobs write into their working tree is not called an edit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tenure.backends.local.clock import Clock
from tenure.backends.local.journal import read_lines
from tenure.backends.local.layout import JOURNAL
from tenure.backends.local.requests import ask
from tenure.domain.attempt import AttemptState
from tenure.domain.lifecycle import Outcome
from tenure.sdk.fingerprint import fingerprint

from .local_rig import LocalRig


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "train.py").write_text("lr = 1\n")
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "x"],
    ):
        subprocess.run(["git", *words], cwd=tree, check=True)
    (tree / "draft.py").write_text("not yet tracked\n")
    return tree


def test_an_edit_is_named_while_the_job_runs(rig: LocalRig, tree: Path) -> None:
    code = fingerprint(tree)
    (tree / "train.py").write_text("lr = 2\n")
    attempt = rig.job("sleep", "900", workdir=str(tree), fingerprint=code)
    rig.backend.start(attempt)
    seen = rig.news.wait(attempt.run_id, lambda seen: "code_changed" in seen.details)
    assert seen.state is AttemptState.RUNNING
    assert "train.py" in str(seen.details["code_changed"])
    looked = rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id]
    assert looked.details["code_changed"] == seen.details["code_changed"]
    assert "code_changed" in (Path(attempt.run_dir) / "record.jsonl").read_text()


def test_an_edit_is_named_for_a_job_that_was_quick(rig: LocalRig, tree: Path) -> None:
    code = fingerprint(tree)
    (tree / "draft.py").write_text("changed\n")
    attempt = rig.job("true", workdir=str(tree), fingerprint=code)
    rig.backend.start(attempt)
    rig.news.settled(attempt.run_id)
    seen = rig.news.wait(attempt.run_id, lambda seen: "code_changed" in seen.details)
    assert "draft.py" in str(seen.details["code_changed"])
    looked = rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id]
    assert (looked.state, looked.details["code_changed"]) == (AttemptState.ENDED, seen.details["code_changed"])


class TellsAtTheEnd(Clock):
    """Asked for the time of the end, it lets somebody tell the supervisor of an edit first."""

    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir
        self._told = False

    def wall(self) -> int:
        if not self._told and any(line["kind"] == "exited" for line in read_lines(f"{self._run_dir}/{JOURNAL}")):
            self._told = ask(self._run_dir, {"kind": "code-changed", "changed": "train.py"})
        return super().wall()


def test_an_edit_that_is_told_of_while_the_end_is_written_down_is_not_lost(rig: LocalRig) -> None:
    attempt = rig.job("true")
    rig.supervise(attempt, clock=TellsAtTheEnd(attempt.run_dir))
    rig.news.settled(attempt.run_id)
    seen = rig.news.wait(attempt.run_id, lambda seen: "code_changed" in seen.details)
    assert (seen.state, seen.outcome) == (AttemptState.ENDED, Outcome.COMPLETED)


def test_what_jobs_write_is_no_edit(rig: LocalRig, tree: Path) -> None:
    (tree / "log.txt").write_text("before\n")
    code = fingerprint(tree)
    writes = rig.job("bash", "-c", "echo x >> log.txt; echo y > result.json", workdir=str(tree), fingerprint=code)
    edited = rig.job("true", workdir=str(tree), fingerprint={**code, "commit": "0" * 40})
    rig.backend.start(writes)
    rig.news.settled(writes.run_id)
    rig.backend.start(edited)
    rig.news.wait(edited.run_id, lambda seen: "code_changed" in seen.details)  # the look has been taken
    assert all("code_changed" not in seen.details for seen in rig.news.of(writes.run_id))


def test_a_named_file_outside_git_is_compared_too(rig: LocalRig, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("1\n")
    code = fingerprint(tmp_path, ["x.py"])
    (tmp_path / "x.py").write_text("2\n")
    attempt = rig.job("true", fingerprint=code)
    rig.backend.start(attempt)
    seen = rig.news.wait(attempt.run_id, lambda seen: "code_changed" in seen.details)
    assert "x.py" in str(seen.details["code_changed"])
