"""`policy try` and `capacity report`, as the program itself, with a platform and without."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from .conftest import Home, eventually

sys.path.insert(0, str(Path(__file__).parents[1] / "telemetry"))
from nvml_fixtures import fake_nvml, nvml_library  # noqa: F401


def lived(running: Home, tmp_path: Path) -> list[dict[str, Any]]:
    """Two jobs that ran one after the other, which are told, and one that was cancelled in the queue."""
    big, gate = ("--shares", "8", "--gpu-memory", "4Gi"), tmp_path / "cancelled"
    first = running.submit(*big, "--name", "train", "--", "sh", "-c", f"until [ -e '{gate}' ]; do sleep 0.05; done")
    second = running.submit(*big, "--name", "train", "--", "sleep", "0.2")
    third = running.submit(*big, "--name", "gone", "--", "true")
    running.ok("cancel", third)
    gate.touch()
    running.ok("wait", "--timeout", "20", first, second)
    return [running.json("show", job) for job in (first, second)]


def apart(before: str, after: str) -> float:
    return (datetime.fromisoformat(after) - datetime.fromisoformat(before)).total_seconds()


def fewer_shares(home: Home, tmp_path: Path) -> Path:
    folder = tmp_path / "other policy"
    folder.mkdir()
    for path in (home.path / "policy").glob("*.yaml"):
        text = path.read_text("utf-8")
        (folder / path.name).write_text(re.sub(r"nominalQuota: 8\b", "nominalQuota: 4", text), "utf-8")
    return folder


def test_a_policy_is_tried_on_what_happened(running: Home, tmp_path: Path) -> None:
    first, second = lived(running, tmp_path)
    ran = sum(apart(job["started_at"], job["ended_at"]) for job in (first, second))
    # what a replay does not know of: how long the processes took to start
    starting = apart(first["submitted_at"], first["started_at"]) + apart(first["ended_at"], second["started_at"])
    other = fewer_shares(running, tmp_path)
    with_daemon = running.json("policy", "try", str(other), "--since", "1h")
    running.ok("down")
    tried = running.json("policy", "try", str(other), "--since", "1h")
    for answer in (with_daemon, tried):
        assert answer["jobs"] == 3
        before, after = answer["before"]["total"], answer["after"]["total"]
        assert (before["started"], before["unmet"]["jobs"]) == (2, 0)
        assert (after["started"], after["unmet"]["jobs"]) == (0, 2)
        assert before["use"]["share_s"] == pytest.approx(8 * ran, rel=0.01)
        assert answer["fidelity"]["compared"] == 2
        assert answer["fidelity"]["off_p90_s"] <= starting + 0.01
        assert any("never started" in note for note in answer["notes"])
    text = running.ok("policy", "try", str(other), "--since", "1h")
    assert "NEVER STARTED" in text
    assert "0 -> 2" in text


def test_a_trace_is_tried_without_a_platform(running: Home, tmp_path: Path) -> None:
    running.ok("down")
    trace = tmp_path / "trace.jsonl"
    lines = [
        {"submitted_at": 0, "runtime_s": 100, "shares": 8, "gpu_memory": "1Gi"},
        {"submitted_at": 10, "runtime_s": 5, "shares": 4, "gpu_memory": "1Gi", "name": "b"},
        {"submitted_at": 10, "runtime_s": 5, "shares": 1, "gpu_memory": "1Gi", "queue": "nowhere"},
    ]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    other = fewer_shares(running, tmp_path)
    answer = running.json("policy", "try", str(other), "--trace", str(trace))
    general = [answer[side]["total"] for side in ("before", "after")]
    assert [(g["started"], g["wait_max_s"]) for g in general] == [(2, 90.0), (1, 0.0)]
    assert "1 job cannot start: there is no queue default/nowhere in the policy tried" in answer["notes"]
    trace.write_text('{"submitted_at": 0, "runtime": 3}\n', "utf-8")
    refused = running.tenure("policy", "try", str(other), "--trace", str(trace))
    assert refused.code == 2
    assert "trace.jsonl:1: 'runtime' is not a field" in refused.err


def test_an_invalid_policy_is_refused_as_check_refuses_it(running: Home, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQeue\nmetadata: {name: x}\n", "utf-8")
    refused = running.tenure("policy", "try", str(bad))
    assert refused.code == 2
    assert "bad.yaml" in refused.err


class Page(HTMLParser):
    """What a page fetches, and the words it shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [str(value) for name, value in attrs if name in ("src", "href", "action")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_report_is_text_json_and_one_page(running: Home, tmp_path: Path) -> None:
    lived(running, tmp_path)
    holder = running.submit("--shares", "8", "--gpu-memory", "4Gi", "--name", "holder", "--", "sleep", "600")
    running.until(holder, "running")
    waits = running.submit("--shares", "2", "--gpu-memory", "4Gi", "--project", "<vision>", "--", "true")
    held = running.submit("--hold", "--shares", "2", "--gpu-memory", "4Gi", "--", "true")
    eventually(lambda: running.json("show", waits)["reason"] == "WaitingForQuota")
    answer = running.json("capacity", "report", "--since", "1h")
    (general,) = [row for row in answer["pending"] if row["jobs"]]
    assert general["pending_p50_s"] <= general["pending_p90_s"] <= general["pending_max_s"]
    assert (general["waiting_now"], general["kept_out_now"]) == (1, 1)
    (card,) = answer["cards"]
    assert card["measured"] is False
    assert card["utilization"] is None
    assert 0 < card["allocation"] <= 1
    assert answer["fragmentation"]["now"]["held"] == {"shares": 8, "memory": 4 << 30}
    assert answer["fragmentation"]["now"]["stranded"] == {"shares": 0, "memory": 12 << 30}
    assert [group["job"] for group in answer["waiting"]] == [waits]
    assert answer["waiting"][0]["reason"] == "WaitingForQuota"
    assert "not measured" in running.ok("capacity", "report", "--since", "1h")
    target = tmp_path / "report.html"
    running.ok("capacity", "report", "--since", "1h", "--output", str(target))
    page = Page(target.read_text("utf-8"))
    assert "script" not in page.tags
    assert page.links == []
    assert page.tags.count("svg") >= 4
    assert "<vision>" in "".join(page.words)
    assert "not measured" in "".join(page.words)
    running.ok("cancel", holder, waits, held)
    running.ok("down")
    assert running.json("capacity", "report", "--since", "1h")["jobs"] == 6


def test_a_measured_card_is_read_while_the_platform_runs(private: Home, fake_nvml: Callable[..., Any]) -> None:  # noqa: F811
    fake = fake_nvml(cards=1)
    fake.state.card(0).utilization = 37
    private.env.update(fake.env)
    private.ok("up", "-d")
    kept = private.path / "telemetry" / "cards.jsonl"
    eventually(lambda: kept.exists() and kept.read_text())
    (card,) = private.json("capacity", "report")["cards"]
    assert (card["source"], card["measured"]) == ("measured", True)
    assert card["utilization_mean"] == 0.37
    assert "37%" in private.ok("capacity", "report")


def test_a_home_without_a_ledger_says_so(private: Home) -> None:
    refused = private.tenure("capacity", "report")
    assert refused.code == 2
    assert "nothing has run there yet" in refused.err
