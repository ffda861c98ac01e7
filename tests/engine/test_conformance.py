"""The engine against the real Kueue: every decision, order, victim, queue place, reason and message of the corpus."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.testing.conformance import differences, main, read_corpus, replay

_DATA = Path(__file__).parent / "data"
_SIZES = {"kueue-classic.jsonl.gz": 424, "kueue-fair.jsonl.gz": 420}


@pytest.mark.parametrize("name", sorted(_SIZES))
def test_every_scenario_agrees_with_kueue(name: str) -> None:
    cases = list(read_corpus(str(_DATA / name)))
    assert len(cases) == _SIZES[name]
    wrong = {
        c["input"]["name"]: found for c in cases if (found := list(differences(c["expected"], replay(c["input"]))))
    }
    assert not wrong
    assert all(replay(c["input"]) == c["expected"] for c in cases[:50])  # the shape too, to the last null


def test_a_difference_is_seen_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import gzip
    import json

    case = next(iter(read_corpus(str(_DATA / "kueue-classic.jsonl.gz"))))
    wrong = json.loads(json.dumps(case))
    changed = next(w for state in wrong["expected"] for w in state["workloads"] if w.get("message"))
    changed["message"] += "!"
    path = tmp_path / "two.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, (case, wrong))).encode()))
    assert main([str(path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "agree 1 of 2"


def test_the_same_scenario_twice_gives_the_same_states() -> None:
    for case in list(read_corpus(str(_DATA / "kueue-fair.jsonl.gz")))[:40]:
        assert replay(case["input"]) == replay(case["input"])


def test_the_order_in_which_objects_are_written_changes_nothing() -> None:
    for case in list(read_corpus(str(_DATA / "kueue-classic.jsonl.gz")))[:60]:
        shuffled = dict(case["input"])
        for kind in ("cohorts", "clusterQueues", "localQueues", "workloads", "flavors"):
            shuffled[kind] = list(reversed(case["input"].get(kind) or []))
        assert not list(differences(case["expected"], replay(shuffled)))
