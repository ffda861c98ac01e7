"""How answers look."""

from __future__ import annotations

import json
import pty
import sys

import pytest

from tenure.cli.ps import row
from tenure.cli.render import age, code_of, emit, plain, span, table
from tenure.cli.why import lines


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-7200, "0s"), (0.9, "0s"), (59, "59s"), (61, "1m01s"), (3599, "59m"), (3660, "1h01m"), (90_000, "1d01h")],
)
def test_a_span_is_short_and_never_negative(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_an_age_spans_two_times_of_the_wire() -> None:
    assert age("2026-11-29T21:30:00.123456Z", "2026-11-29T21:32:05.000000Z") == "2m04s"
    assert age(None) == "-"


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({"state": "queued"}, "PD"),
        ({"state": "admitted"}, "CF"),
        ({"state": "running"}, "R"),
        ({"state": "evicting"}, "CG"),
        ({"state": "cancelling"}, "CG"),
        ({"state": "ended", "outcome": "completed"}, "CD"),
        ({"state": "ended", "outcome": "failed"}, "F"),
        ({"state": "ended", "outcome": "failed", "reason": "OutOfMemory"}, "OOM"),
        ({"state": "ended", "outcome": "cancelled"}, "CA"),
        ({"state": "ended", "outcome": "interrupted", "reason": "Preempted"}, "PR"),
    ],
)
def test_a_job_has_a_code_that_squeue_taught(job: dict[str, str], code: str) -> None:
    assert code_of(job) == code


def test_no_name_can_draw_on_a_terminal() -> None:
    assert plain('训练 "x" $(rm) \n\x1b[2J\u202e\udc80') == '训练 "x" $(rm) \\n\\x1b[2J\\u202e\\udc80'


def test_columns_line_up_for_wide_letters_and_nothing_is_cut_off_a_terminal() -> None:
    lines = table(["NAME", "N", "REASON"], [["训练", 1, "x" * 300], ["digits", 22, None]])
    assert lines == ["NAME    N   REASON", f"训练    1   {'x' * 300}", "digits  22  -"]


@pytest.mark.parametrize("items", [0, 1, 21, 1000])
def test_json_is_json_however_long(items: int, capsys: pytest.CaptureFixture[str]) -> None:
    document = [{"id": str(i), "name": '训练 "x"\n'} for i in range(items)]
    emit(document, "json")
    assert json.loads(capsys.readouterr().out) == document


def test_a_job_that_waits_again_is_not_running() -> None:
    started = {"id": "1", "started_at": "2026-11-29T21:30:00.000000Z"}
    ended = started | {"state": "ended", "outcome": "completed", "ended_at": "2026-11-29T21:30:05.000000Z"}
    assert row(ended, wide=False)[6] == "5s"
    assert row(started | {"state": "queued"}, wide=False)[6] == "-"


def test_why_says_whose_the_holder_is_and_what_a_preemption_cost() -> None:
    holder = {"id": "4", "name": "train", "owner": "ada", "priority_class": "training", "preemptible": False}
    holder |= {"since": "2026-11-29T21:30:00.000000Z", "because": "the rule"}
    blocker = {
        "kind": "quota",
        "resource": "nvidia.com/gpu",
        "flavor": "card",
        "asked": 2,
        "free": 0,
        "held_by": [holder],
    }
    nothing = {"reason": "", "attempt": None, "taken_by": None, "rule": None, "lost_s": None}
    ran = {
        **nothing,
        "phase": "ran",
        "seconds": 90,
        "attempt": 1,
        "taken_by": "4",
        "rule": "InClusterQueue",
        "lost_s": 30,
    }
    phases = [
        {**nothing, "phase": "waited", "reason": "WaitingForQuota", "seconds": 60},
        ran,
        {**nothing, "phase": "waited", "reason": "WaitingForQuota", "seconds": 5},
    ]
    said = lines({"id": "3", "state": "queued", "blockers": [blocker], "phases": phases})
    assert said[2].startswith("    held by 4 train [training]: stays (the rule), ada's, for ")
    assert said[3:] == [
        "in all: waited (WaitingForQuota) 1m05s, ran 1m30s",
        "  attempt 1 ran 1m30s, ended by 4 (InClusterQueue), 30s of it to do again",
    ]


def test_one_long_name_takes_no_column_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        ["1", "n" * 1000, "R", "why " * 50],
        ["2", "训" * 400, "PD", "-"],
        ["3", "x", "R", "2026-11-30T03:51:06.178405Z"],
    ]
    whole = table(["ID", "NAME", "ST", "REASON"], rows)
    assert "n" * 1000 in whole[1]  # for a program nothing is cut
    ours, theirs = pty.openpty()
    with open(ours, "rb"), open(theirs, "w") as screen:
        monkeypatch.setattr(sys, "stdout", screen)
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("NO_COLOR", "1")
        shown = table(["ID", "NAME", "ST", "REASON"], rows)
    assert [line[:4] for line in shown] == ["ID  ", "1   ", "2   ", "3   "]
    assert len(shown[1]) == 80
    assert shown[1].split()[1] == "n" * 31 + "…"
    assert shown[2].split()[1:] == ["训" * 15 + "…", "PD", "-"]
    assert shown[3].endswith("2026-11-30T03:51:06.178405Z")
