"""The capacity report's arithmetic on made-up facts, and the file of readings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.control import samples
from tenure.control.capacity import SLOTS, Facts, report
from tenure.control.samples import Reading, SampleLog
from tenure.domain.attempt import AttemptState
from tenure.domain.ids import CardId, Instant, JobId, RunId
from tenure.domain.job import JobSpec
from tenure.domain.lifecycle import JobState
from tenure.ledger import AttemptRow, JobRow
from tenure.telemetry.monitor import CardSample
from tenure.testing import lab

S = 1_000_000
WINDOW = SLOTS * 10 * S
GI = 1 << 30
POLICY = lab.policy(
    {
        "queues": {
            "a": {"cohort": "all", "owns": {"gpu": 6, "memory": "12Gi"}},
            "b": {"cohort": "all", "owns": {"gpu": 2, "memory": "4Gi"}},
        }
    }
)
CARD = lab.cards([{"id": "c", "shares": 8, "memory": "16Gi"}])


def facts(
    jobs: list[tuple[str, int, int | None, int | None, int, int]], readings: list[Reading] | None = None
) -> Facts:
    """A job is (queue, submitted, started, ended, shares, GiB), times in seconds from the start of the window."""
    rows, attempts, specs = [], {}, {}
    for n, (queue, came, began, ended, shares, gib) in enumerate(jobs, 1):
        job = JobId(str(n))
        state = JobState.QUEUED if began is None else JobState.RUNNING if ended is None else JobState.ENDED
        rows.append(
            JobRow(
                seq=n, id=job, name="x", spec_digest=str(n), submitted_at=Instant(came * S), cluster_queue=queue, state=state,
                attempts=int(began is not None), reason="WaitingForQuota" if began is None else "", owner="ada",
            )
        )  # fmt: skip
        specs[str(n)] = JobSpec(name="x", argv=("x",), shares=shares, gpu_memory=gib * GI)
        if began is not None:
            attempts[job] = [
                AttemptRow(
                    run_id=RunId(f"{n}.1"), job_id=job, number=1, created_at=Instant(began * S),
                    state=AttemptState.ENDED if ended is not None else AttemptState.RUNNING,
                    ended_at=None if ended is None else Instant(ended * S),
                    placement=[{"card": "c", "ranks": [0], "shares": shares, "memory": gib * GI}],
                )
            ]  # fmt: skip
    return Facts(
        since=Instant(0), now=Instant(WINDOW), policy=POLICY, cards=CARD, card_source="declared", rows=rows,
        attempts=attempts, specs=specs, readings=readings or [],
    )  # fmt: skip


def test_held_borrowed_and_lent_follow_the_attempts() -> None:
    half = WINDOW // S // 2
    answer = report(facts([("b", 0, 0, half, 4, 8)]))
    (card,) = answer["cards"]
    assert card["allocation"] == 0.25
    assert card["memory_allocation"] == 0.25
    a, b = answer["queues"]
    assert b["shares"]["borrowed"] == [2.0] * (SLOTS // 2) + [0.0] * (SLOTS // 2)
    assert a["shares"]["lent"] == b["shares"]["borrowed"]
    assert a["memory"]["lent"] == b["memory"]["borrowed"]
    assert b["memory"]["borrowed"][0] == 4 * GI


def test_pending_time_counts_each_job_once_and_the_waiting_too() -> None:
    end = WINDOW // S
    answer = report(facts([("a", 0, 10, 20, 1, 1), ("a", 0, 40, 60, 1, 1), ("a", end - 30, None, None, 8, 1)]))
    row = next(row for row in answer["pending"] if row["queue"] == "a")
    assert (row["jobs"], row["pending_p50_s"], row["pending_max_s"]) == (3, 30, 40)
    assert (row["waiting_now"], row["longest_now_s"]) == (1, 30)
    assert answer["waiting"][0] == {
        "queue": "a", "project": "default", "owner": "ada", "jobs": 1, "shares": 8, "memory": GI, "longest_s": 30, "job": "3",
        "reason": "WaitingForQuota", "message": "", "reasons": {"WaitingForQuota": 1},
    }  # fmt: skip


def test_free_room_is_told_by_who_could_use_it() -> None:
    def now(*jobs: tuple[str, int, int | None, int | None, int, int]) -> Any:
        return report(facts(list(jobs)))["fragmentation"]["now"]

    runs = ("a", 0, 0, None, 6, 12)
    assert now(runs)["idle"] == {"shares": 2, "memory": 4 * GI}
    assert now(runs, ("a", 5, None, None, 2, 4))["takable"] == {"shares": 2, "memory": 4 * GI}
    assert now(runs, ("a", 5, None, None, 3, 1), ("a", 5, None, None, 1, 5))["stranded"] == {"shares": 2, "memory": 4 * GI}  # fmt: skip


jobs = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 500), st.integers(0, 500), st.integers(0, 1100), st.integers(1, 2), st.integers(1, 4)),
    max_size=4,
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(jobs)
def test_every_share_is_in_one_place_and_what_is_borrowed_is_lent(
    raw: list[tuple[str, int, int, int, int, int]],
) -> None:
    answer = report(facts([(q, came, came + wait, came + wait + ran, s, g) for q, came, wait, ran, s, g in raw]))
    for word, total in (("shares", 8), ("memory", 16 * GI)):
        kinds = answer["fragmentation"][word].values()
        assert all(sum(slot) == total for slot in zip(*kinds, strict=True))
        borrowed = [sum(q[word]["borrowed"][i] for q in answer["queues"]) for i in range(SLOTS)]
        lent = [sum(q[word]["lent"][i] for q in answer["queues"]) for i in range(SLOTS)]
        assert all(abs(x - y) <= 2e-3 * (1 if word == "shares" else 1000) for x, y in zip(borrowed, lent, strict=True))
        used = sum(sum(q[word]["used"]) for q in answer["queues"])
        assert abs(used - sum(answer["cards"][0][f"{word}_held"])) <= 1e-2 * (1 if word == "shares" else 1e5)


def test_readings_are_means_of_their_slots_and_absent_where_there_are_none() -> None:
    seen = [Reading(card="c", at=Instant(t * S), utilization=u, memory_used=8 * GI) for t, u in ((1, 20), (2, 40))]
    (card,) = report(facts([], seen))["cards"]
    assert card["utilization"] == [30.0] + [None] * (SLOTS - 1)
    assert (card["utilization_mean"], card["memory_used_mean"]) == (0.3, 0.5)
    (card,) = report(facts([]))["cards"]
    assert (card["measured"], card["utilization"], card["utilization_mean"]) == (False, None, None)


def sample(at: int, **fields: Any) -> CardSample:
    return CardSample(card=CardId("c"), at=Instant(at), **fields)


def test_readings_are_kept_in_files_of_bounded_size(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(samples, "FULL", 500)
    log = SampleLog(tmp_path / "telemetry")
    log.write([sample(0, error="lost"), sample(0, measured=False)])
    assert not (tmp_path / "telemetry").exists()
    for at in range(1, 301):
        log.write([sample(at, utilization=at % 100, memory_used=at)])
    files = sorted((tmp_path / "telemetry").iterdir())
    assert len(files) == samples.KEPT + 1
    assert all(path.stat().st_size < 600 for path in files)
    with files[-1].open("a") as newest:
        newest.write('{"at": 5, "card"')
    kept = [reading.at for reading in log.read(since=Instant(0))]
    assert kept == list(range(kept[0], 301))
    assert next(iter(log.read(since=Instant(300)))).memory_used == 300


def test_however_often_somebody_reads_a_line_is_kept_now_and_then(tmp_path: Path, monkeypatch: Any) -> None:
    log = SampleLog(tmp_path / "telemetry")
    for at in (1, 2):
        log.saw([sample(at, utilization=50)])
    assert [reading.at for reading in log.read(since=Instant(0))] == [1]
    monkeypatch.setattr(samples, "SAMPLE_S", 0.0)
    (tmp_path / "a file").touch()
    SampleLog(tmp_path / "a file").saw([sample(3, utilization=50)])  # nobody who reads is held up by it


def test_a_line_is_what_the_page_says(tmp_path: Path) -> None:
    SampleLog(tmp_path).write([sample(7, utilization=50, memory_used=1024)])
    assert json.loads((tmp_path / "cards.jsonl").read_text()) == {"at": 7, "card": "c", "util": 50, "mem": 1024}
