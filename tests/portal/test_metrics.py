"""What Prometheus is told: Kueue's names and labels, numbers that the diary bears out, and no text of a user."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections import Counter
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenure.domain.events import Event, EventKind
from tenure.domain.ids import Instant, JobId, RunId
from tenure.ledger import JobRow
from tenure.portal.metrics import FAMILIES
from tenure.portal.metrics.counts import Counts
from tenure.portal.metrics.samples import Samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Door

    Opener = Callable[..., AbstractContextManager[Door]]

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
KUEUE = {
    "cluster_queue_resource_pending": "cluster_queue resource",
    "cohort_subtree_admitted_workloads_total": "cohort priority_class",
    "admission_attempts_total": "result",
    "admission_attempt_duration_seconds": "result",
    "pending_workloads": "cluster_queue status",
    "quota_reserved_workloads_total": "cluster_queue priority_class",
    "admitted_workloads_total": "cluster_queue priority_class",
    "finished_workloads_total": "cluster_queue priority_class",
    "reserving_active_workloads": "cluster_queue",
    "admitted_active_workloads": "cluster_queue",
    "quota_reserved_wait_time_seconds": "cluster_queue priority_class",
    "admission_wait_time_seconds": "cluster_queue priority_class",
    "admission_checks_wait_time_seconds": "cluster_queue priority_class",
    "ready_wait_time_seconds": "cluster_queue priority_class",
    "admitted_until_ready_wait_time_seconds": "cluster_queue priority_class",
    "evicted_workloads_total": "cluster_queue reason underlying_cause priority_class",
    "evicted_workloads_once_total": "cluster_queue reason detailed_reason priority_class",
    "pods_ready_to_evicted_time_seconds": "cluster_queue reason underlying_cause",
    "cohort_weighted_share": "cohort",
    "cohort_subtree_quota": "cohort flavor resource",
    "cohort_subtree_resource_reservations": "cohort flavor resource",
    "cohort_subtree_admitted_active_workloads": "cohort",
    "preempted_workloads_total": "preempting_cluster_queue reason",
    "cluster_queue_status": "cluster_queue status",
    "cluster_queue_resource_reservation": "cohort cluster_queue flavor resource",
    "cluster_queue_resource_usage": "cohort cluster_queue flavor resource",
    "cluster_queue_nominal_quota": "cohort cluster_queue flavor resource",
    "cluster_queue_borrowing_limit": "cohort cluster_queue flavor resource",
    "cluster_queue_lending_limit": "cohort cluster_queue flavor resource",
    "cluster_queue_weighted_share": "cluster_queue cohort",
    "unadmitted_workloads": "cluster_queue reason underlying_cause",
    "local_queue_pending_workloads": "name namespace status",
    "local_queue_unadmitted_workloads": "name namespace reason underlying_cause",
    "local_queue_reserving_active_workloads": "name namespace",
    "local_queue_admitted_active_workloads": "name namespace",
    "local_queue_admitted_workloads_total": "name namespace priority_class",
    "local_queue_evicted_workloads_total": "name namespace reason underlying_cause priority_class",
}
WHERE = Counter[tuple[str, tuple[tuple[str, str], ...]]]


class Scrape:
    """One answer of /metrics, asked by name and labels; what is not there is 0 and not `in` it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    def __getitem__(self, name: str) -> float:
        return self.sum(name)

    def __contains__(self, name: str) -> bool:
        return any(sample.name == name for sample in self.samples)

    def sum(self, name: str, /, **labels: str) -> float:
        """Over every series that has these labels, among others."""
        return sum(s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items())


def scrape(door: Door) -> Scrape:
    answer = door.ask("GET", "/metrics")
    assert answer.status == 200, answer.body
    return Scrape(answer.body.decode())


@contextmanager
def cancelled_at_end(door: Door) -> Iterator[list[str]]:
    """Jobs that must not outlive the test."""
    jobs: list[str] = []
    try:
        yield jobs
    finally:
        for job in jobs:
            door.ask("POST", f"/api/v1/jobs/{job}:cancel", {"grace_s": 0.1})
        for job in jobs:
            door.wait(job)


# --- names


def test_kueues_names_and_labels_are_kueues() -> None:
    ours = {f.name.removeprefix("tenure_"): " ".join(f.labels) for f in FAMILIES if f.kueue}
    assert ours == KUEUE
    assert all(f.kueue == f.name.replace("tenure_", "kueue_", 1) for f in FAMILIES if f.kueue)


def test_no_counter_is_a_gauge_as_well() -> None:
    """A counter's bare name is its family's name for whoever reads OpenMetrics."""
    bare = [f.name.removesuffix("_total") for f in FAMILIES]
    assert len(set(bare)) == len(bare)


def test_the_page_of_metrics_is_the_table_of_metrics() -> None:
    rows = re.findall(r"^\| `([\w]+)` \| (\w+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", DOCS.read_text(), re.MULTILINE)
    told = {name: (kind, labels, meaning, kueue) for name, kind, labels, meaning, kueue in rows}
    known = {
        f.name: (f.kind, ", ".join(f.labels), f.help, f"`{f.kueue}`" if f.kueue else "") for f in FAMILIES
    }  # fmt: skip
    assert told == known


def test_every_sample_is_of_the_table_with_its_labels_and_type(door: Door) -> None:
    with cancelled_at_end(door) as jobs:
        door.wait(door.submit("true", shares=1, gpu_memory="1Gi"))
        jobs.append(door.submit("sleep", "60", shares=8, gpu_memory="1Gi"))
        jobs.append(door.submit("sleep", "60", shares=8, gpu_memory="1Gi"))
        door.is_(jobs[0], "running")
        door.waits(jobs[1])
        seen = scrape(door)
    table = {f.name.removesuffix("_total") if f.kind == "counter" else f.name: f for f in FAMILIES}
    for name, family in seen.families.items():
        if name.startswith("process_"):
            continue
        known = table[name]
        assert family.type == known.kind, name
        assert all(set(sample.labels) - {"le"} == set(known.labels) for sample in family.samples), name
    conditional = {
        "tenure_evicted_workloads", "tenure_preempted_workloads", "tenure_local_queue_evicted_workloads",
        "tenure_cluster_queue_lending_limit", "tenure_card_readable", "tenure_evicted_workloads_once",
        "tenure_pods_ready_to_evicted_time_seconds", "tenure_admission_checks_wait_time_seconds",
    }  # fmt: skip
    absent = {name for name in table if name not in seen.families and not name.startswith("DCGM_")}
    assert absent <= conditional
    assert not [name for name in seen.families if name.startswith("DCGM_")], "a declared card has no readings"


def test_no_word_of_a_user_is_in_the_metrics(door: Door) -> None:
    secret = {
        "name": "SECRET-name", "project": "SECRET-project", "env": {"SECRET": "SECRET"}, "labels": {"SECRET": "SECRET"},
    }  # fmt: skip
    with cancelled_at_end(door) as jobs:
        door.wait(door.submit("sh", "-c", "echo SECRET; exit 3", shares=1, gpu_memory="1Gi", **secret))
        jobs.append(door.submit("sleep", "60", shares=8, gpu_memory="1Gi", **secret))
        jobs.append(door.submit("SECRET-program", shares=1, gpu_memory="1Gi", **secret))
        jobs.append(door.submit("true", shares=1, gpu_memory="1Gi", hold=True, **secret))
        pending = {"cluster_queue": "general", "resource": "nvidia.com/gpu"}
        door.is_(jobs[0], "running")
        door.waits(jobs[1])
        seen = scrape(door)
    assert "SECRET" not in seen.text
    assert seen.sum("tenure_cluster_queue_resource_pending", **pending) == 1  # what is held is not in the engine
    assert seen.sum("tenure_job_outcomes_total", outcome="failed") >= 1


# --- numbers


def failed_launches(door: Door) -> int:
    """As the diary has them."""
    diary = door.platform.ledger.events(limit=100_000)
    return sum("launch_failures" in e.changes and e.kind is not EventKind.JOB_SUBMITTED for e in diary)


def test_counters_are_what_the_diary_says_however_often_they_are_asked(open_door: Opener, tmp_path: Path) -> None:
    """Four scrapers at once, while jobs end, are preempted, fail to launch and are cancelled: each line counts once."""
    with open_door(tmp_path / "home") as door:
        over = threading.Event()
        answers: list[Scrape] = []

        def ask() -> None:
            while not over.is_set():
                answers.append(scrape(door))

        scrapers = [threading.Thread(target=ask) for _ in range(4)]
        for thread in scrapers:
            thread.start()
        try:
            low = door.submit("sleep", "60", shares=8, gpu_memory="1Gi", priority="batch")
            door.is_(low, "running")
            jobs = [door.submit("true", shares=2, gpu_memory="1Gi", priority="training") for _ in range(12)]
            broken = door.submit("no-such-program", shares=1, gpu_memory="1Gi", priority="training")
            held = door.submit("true", shares=1, gpu_memory="1Gi", hold=True)
            for job in jobs:
                door.wait(job)
            door.until("a launch has failed", lambda: failed_launches(door))
            for job in (broken, held, low):
                door.ask("POST", f"/api/v1/jobs/{job}:cancel", {"grace_s": 0.1})
                door.wait(job)
        finally:
            over.set()
            for thread in scrapers:
                thread.join()
        seen = scrape(door)
        diary = door.platform.ledger.events(limit=100_000)
        happened = Counter(event.kind for event in diary)
        assert seen["tenure_metrics_diary_lag_events"] == 0
        assert seen["tenure_admitted_workloads_total"] == happened[EventKind.JOB_ADMITTED]
        assert seen["tenure_quota_reserved_workloads_total"] == happened[EventKind.JOB_ADMITTED]
        assert seen["tenure_cohort_subtree_admitted_workloads_total"] == happened[EventKind.JOB_ADMITTED]
        assert seen["tenure_admission_wait_time_seconds_count"] == happened[EventKind.JOB_ADMITTED]
        assert seen["tenure_ready_wait_time_seconds_count"] == happened[EventKind.JOB_STARTED]
        assert seen["tenure_finished_workloads_total"] == happened[EventKind.JOB_ENDED] == len(jobs) + 3
        assert seen.sum("tenure_job_outcomes_total", outcome="completed") == len(jobs)
        assert seen.sum("tenure_job_outcomes_total", outcome="cancelled") == 3
        assert seen["tenure_preempted_workloads_total"] == happened[EventKind.JOB_PREEMPTED] >= 1
        assert seen.sum("tenure_evicted_workloads_total", reason="Preempted") == happened[EventKind.JOB_PREEMPTED]
        assert seen["tenure_launch_failures_total"] == failed_launches(door) >= 1
        for name in ("tenure_admitted_workloads_total", "tenure_finished_workloads_total"):
            assert max(answer[name] for answer in answers) <= seen[name], "a counter never goes back"


def test_another_daemon_counts_from_its_own_first_line(open_door: Opener, tmp_path: Path) -> None:
    """Nothing of the daemon before is counted again, and what was queued by it waits from its requeue."""
    home = tmp_path / "home"
    with open_door(home) as door:
        for _ in range(3):
            door.wait(door.submit("true", shares=1, gpu_memory="1Gi"))
        kept = door.submit("sleep", "60", shares=8, gpu_memory="1Gi")
        door.is_(kept, "running")
        assert scrape(door)["tenure_admitted_workloads_total"] == 4
        submitted = door.platform.ledger.job(JobId(kept)).submitted_at
    with open_door(home) as door, cancelled_at_end(door) as jobs:
        jobs.append(kept)
        while (seen := scrape(door))["tenure_reserving_active_workloads"] < 1:
            door.platform.news.wait(door.platform.news.cursor, 1)
        assert seen["tenure_admitted_workloads_total"] == 1  # again, by this daemon
        assert seen["tenure_finished_workloads_total"] == 0
        assert "tenure_evicted_workloads_total" not in seen  # its own stop evicted it: the daemon before counted that
        requeued = door.platform.ledger.events(job_id=kept, kinds=[EventKind.JOB_REQUEUED])[-1].at
        admitted = door.platform.ledger.events(job_id=kept, kinds=[EventKind.JOB_ADMITTED])[-1].at
        waited = seen["tenure_admission_wait_time_seconds_sum"]
        assert waited == pytest.approx((admitted - requeued) / 1e6)
        assert waited < (admitted - submitted) / 1e6


def test_gauges_are_what_queues_and_cards_are_now(open_door: Opener, tmp_path: Path) -> None:
    with open_door(tmp_path / "home") as door, cancelled_at_end(door) as jobs:
        jobs.append(door.submit("sleep", "60", shares=6, gpu_memory="10Gi"))
        jobs += [door.submit("sleep", "60", shares=4, gpu_memory="1Gi") for _ in range(3)]
        jobs.append(door.submit("true", shares=1, gpu_memory="1Gi", hold=True))
        jobs.append(door.submit("true", shares=1, gpu_memory="1Gi", begin="now+1hour"))
        jobs.append(door.submit("sleep", "60", shares=1, gpu_memory="1Gi", queue="large-model"))
        unadmitted = {"WaitingForQuota": 3, "Suspended": 1, "WaitingForBeginTime": 1}

        def told() -> Scrape | None:
            seen = scrape(door)
            counts = [s for s in seen.samples if s.name == "tenure_unadmitted_workloads" and s.value]
            reasons = {s.labels["reason"]: s.value for s in counts}
            return seen if reasons == unadmitted and seen["tenure_pending_workloads"] == 3 else None

        seen = door.until(f"the reasons are {unadmitted}", told)
        assert seen.sum("tenure_pending_workloads", cluster_queue="general", status="inadmissible") == 3
        assert seen.sum("tenure_local_queue_pending_workloads", name="default", namespace="default") == 3
        assert seen.sum("tenure_reserving_active_workloads", cluster_queue="general") == 1
        assert seen.sum("tenure_admitted_active_workloads", cluster_queue="large-model") == 1
        gpu = {"resource": "nvidia.com/gpu", "cohort": "card"}
        assert seen.sum("tenure_cluster_queue_resource_usage", cluster_queue="general", **gpu) == 6
        assert seen.sum("tenure_cluster_queue_resource_reservation", cluster_queue="large-model", **gpu) == 1
        assert seen.sum("tenure_cluster_queue_nominal_quota", cluster_queue="general", **gpu) == 8
        assert seen.sum("tenure_cluster_queue_borrowing_limit", cluster_queue="large-model", **gpu) == 1
        assert seen.sum("tenure_cluster_queue_weighted_share", cluster_queue="large-model") == 125  # 1 of 8
        assert seen.sum("tenure_cluster_queue_status", cluster_queue="general", status="active") == 1
        assert 0 < seen.sum("tenure_oldest_pending_workload_seconds", cluster_queue="general") < 60
        assert seen.sum("tenure_jobs", state="queued") == 5
        whole = {"cohort": "card", "resource": "nvidia.com/gpu"}
        assert seen.sum("tenure_cohort_subtree_quota", **whole) == 8
        assert seen.sum("tenure_cohort_subtree_resource_reservations", **whole) == 7
        assert seen.sum("tenure_cohort_subtree_admitted_active_workloads", cohort="card") == 2
        card = {"card": "declared-0", "source": "declared"}
        assert seen.sum("tenure_card_shares", **card) == 8
        assert seen.sum("tenure_card_shares_held", **card) == 7
        assert seen.sum("tenure_card_memory_promised_bytes", **card) == 11 << 30
        assert seen.sum("tenure_admission_attempts_total", result="success") >= 1
        assert seen.sum("tenure_ledger_commit_duration_seconds_count", durable="true") >= len(jobs)


def test_metrics_answer_while_the_loop_hangs(door: Door) -> None:
    """Who watches must hear of it: the last look is shown, and how old it is."""
    before = scrape(door)
    assert before["tenure_metrics_snapshot_age_seconds"] < 1
    hung, release = threading.Event(), threading.Event()

    def hang() -> None:
        with door.platform.conductor.lock:
            hung.set()
            release.wait(30)

    thread = threading.Thread(target=hang)
    thread.start()
    try:
        assert hung.wait(20)
        seen = scrape(door)
    finally:
        release.set()
        thread.join()
    assert seen["tenure_metrics_snapshot_age_seconds"] >= 1
    assert seen["tenure_conductor_last_step_seconds"] >= 1
    assert seen["tenure_card_shares"] == before["tenure_card_shares"] == 8


def test_ten_thousand_waiting_jobs_do_not_slow_a_scrape(open_door: Opener, tmp_path: Path) -> None:
    """50 ms of the processor; the best of several is held against it, for the platform has other things to do as well."""
    with open_door(tmp_path / "home") as door:
        door.submit("sleep", "60", shares=8, gpu_memory="1Gi", priority="training", name="holder")
        door.submit("sleep", "60", shares=8, gpu_memory="1Gi", array="1-10000")
        while scrape(door)["tenure_pending_workloads"] != 10_000:
            door.platform.news.wait(door.platform.news.cursor, 1)
        took = []
        for _ in range(12):
            began = time.process_time()
            scrape_bytes = door.ask("GET", "/metrics").body
            took.append(time.process_time() - began)
        assert len(scrape_bytes) < 100_000
        assert min(took) < 0.050, took


def test_windows_are_seen_while_they_hold_a_card_and_counted_when_they_end(open_door: Opener, tmp_path: Path) -> None:
    with open_door(tmp_path / "home") as door:
        first = door.ask("POST", "/api/v1/windows", {"for": "1h"}).json["id"]
        second = door.ask("POST", "/api/v1/windows", {"wait": True}).json["id"]
        while door.ask("GET", f"/api/v1/windows/{first}").json["state"] != "active":
            door.platform.news.wait(door.platform.news.cursor, 0.2)
        seen = scrape(door)
        assert seen.sum("tenure_window_active", card="declared-0") == 1
        assert seen.sum("tenure_windows_waiting", card="declared-0") == 1
        assert seen.sum("tenure_windows_total") == 0
        for window in (second, first):
            assert door.ask("POST", f"/api/v1/windows/{window}:release", {}).status == 200
        seen = scrape(door)
        assert seen.sum("tenure_window_active", card="declared-0") == 0
        assert seen.sum("tenure_windows_total", ended_reason="Released") == 2
        assert "tenure_windows_total" in seen
        row = door.ask("GET", f"/api/v1/windows/{first}").json
        lasted = datetime.fromisoformat(row["ended_at"]) - datetime.fromisoformat(row["opened_at"])
        held = seen.sum("tenure_window_held_seconds_total", card="declared-0")
        # by the steady clock from when it stood in the ledger, and the stamps are from before it was written there
        assert lasted.total_seconds() - 1 < held <= lasted.total_seconds() + 0.05


# --- the counts alone


def _event(number: int, kind: EventKind, at: float, **fields: Any) -> Event:
    job = fields.pop("job", "1")
    return Event(id=number, kind=kind, at=Instant(int(at * 1e6)), job_id=JobId(job), **fields)


def _row(job: str, **fields: Any) -> JobRow:
    return JobRow(
        seq=1, id=JobId(job), name="x", spec_digest="", submitted_at=Instant(0), cluster_queue="q", queue="l", **fields
    )  # fmt: skip


def _collected(counts: Counts) -> Scrape:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    class One(Collector):
        def collect(self) -> Any:
            samples = Samples()
            counts.collect(samples, queues=["q"], classes=[""])
            return list(samples)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(One())
    return Scrape(generate_latest(registry).decode())


def test_a_wait_begins_at_the_submission_the_release_or_the_requeue() -> None:
    counts = Counts()
    counts.meet(_row("1"))
    for number, (kind, at, fields) in enumerate(
        [
            (EventKind.JOB_RELEASED, 10, {}),
            (EventKind.JOB_ADMITTED, 14, {"changes": {"cluster_queue": "q"}}),  # waited 4
            (EventKind.JOB_STARTED, 15, {}),
            (EventKind.JOB_PREEMPTED, 20, {"changes": {"reason": "Preempted"}, "data": {"rule": "InClusterQueue"}}),
            (EventKind.JOB_REQUEUED, 21, {"data": {"outcome": "interrupted"}}),
            (EventKind.JOB_ADMITTED, 321, {"changes": {"cluster_queue": "q"}}),  # waited 300
        ]
    ):
        counts.see(_event(number, kind, at, **fields))
    seen = _collected(counts)
    assert seen["tenure_admission_wait_time_seconds_sum"] == 304
    assert seen.sum("tenure_admission_wait_time_seconds_bucket", le="5.0") == 1
    assert seen.sum("tenure_admission_wait_time_seconds_bucket", le="320.0") == 2
    assert seen["tenure_ready_wait_time_seconds_sum"] == 5
    assert seen["tenure_admitted_until_ready_wait_time_seconds_sum"] == 1
    assert seen["tenure_evicted_workloads_total"] == 1  # the requeue is the end of the same eviction
    assert seen["tenure_pods_ready_to_evicted_time_seconds_sum"] == 5
    again = {"changes": {"reason": "SupervisorLost"}, "data": {"outcome": "interrupted"}}
    counts.see(_event(9, EventKind.JOB_REQUEUED, 400, **again))
    seen = _collected(counts)
    assert (seen["tenure_evicted_workloads_total"], seen["tenure_evicted_workloads_once_total"]) == (2, 1)


def test_admission_checks_stand_between_quota_and_admission() -> None:
    counts = Counts(lambda cluster_queue: cluster_queue == "q")
    for job in ("1", "2"):
        counts.meet(_row(job))
        counts.see(_event(1, EventKind.JOB_ADMITTED, 10, job=job, changes={"cluster_queue": "q"}))
    counts.see(_event(3, EventKind.JOB_CHECKED, 11, changes={"reason": "UnsatisfiedAdmissionChecks"}))
    seen = _collected(counts)
    assert (seen["tenure_quota_reserved_workloads_total"], seen["tenure_admitted_workloads_total"]) == (2, 0)
    counts.see(_event(4, EventKind.JOB_CHECKED, 17, changes={"reason": ""}))
    counts.see(_event(5, EventKind.JOB_STARTED, 18))
    counts.see(_event(6, EventKind.JOB_STARTED, 12, job="2"))  # the check is not on the flavor it was given
    seen = _collected(counts)
    assert seen["tenure_admitted_workloads_total"] == 2
    assert seen["tenure_admission_wait_time_seconds_sum"] == 17 + 12
    assert seen["tenure_admission_checks_wait_time_seconds_sum"] == 7
    assert seen["tenure_admitted_until_ready_wait_time_seconds_sum"] == 1


def test_a_lost_supervisor_is_an_eviction_and_a_retry_is_none() -> None:
    counts = Counts()
    counts.meet(_row("1"))
    counts.meet(_row("2"))
    lost = {"changes": {"reason": "SupervisorLost"}, "data": {"outcome": "interrupted"}}
    counts.see(_event(1, EventKind.JOB_REQUEUED, 1, **lost))
    again = {"changes": {"reason": "Error", "retries_used": 1}, "data": {"outcome": "failed"}}
    counts.see(_event(2, EventKind.JOB_REQUEUED, 2, job="2", **again))
    seen = _collected(counts)
    assert seen.sum("tenure_evicted_workloads_total", reason="SupervisorLost", cluster_queue="q") == 1
    assert seen["tenure_evicted_workloads_total"] == 1


def test_the_last_failed_launch_counts_although_the_job_ends_with_it() -> None:
    counts = Counts()
    counts.meet(_row("1"))
    counts.see(_event(1, EventKind.JOB_LAUNCH_FAILED, 1, changes={"launch_failures": 1}))
    counts.see(_event(2, EventKind.JOB_ENDED, 2, changes={"launch_failures": 2, "outcome": "failed"}))
    seen = _collected(counts)
    assert seen.sum("tenure_launch_failures_total", cluster_queue="q") == 2
    assert seen.sum("tenure_job_outcomes_total", outcome="failed") == 1


def test_a_livelock_is_there_from_the_start_and_counts() -> None:
    counts = Counts()
    assert "tenure_livelock_events_total" in _collected(counts)
    counts.see(_event(1, EventKind.LIVELOCK, 1))
    assert _collected(counts)["tenure_livelock_events_total"] == 1


def test_a_stalled_run_is_one_until_it_heals_or_its_attempt_ends() -> None:
    counts = Counts()
    for job in ("1", "2", "3"):
        counts.meet(_row(job))
        counts.see(_event(int(job), EventKind.RUN_REAPED, 1, job=job, run_id=RunId(f"{job}.1")))
    counts.see(Event(id=4, kind=EventKind.RUN_REAPED, at=Instant(1), run_id=RunId("by-hand")))
    assert _collected(counts)["tenure_stalled_runs"] == 3
    counts.see(_event(5, EventKind.RUN_HEALED, 2, job="1", run_id=RunId("1.1")))
    counts.see(_event(6, EventKind.JOB_ENDED, 3, job="2", changes={"outcome": "failed"}))
    seen = _collected(counts)
    assert seen["tenure_stalled_runs"] == 1
    assert seen.sum("tenure_runs_given_up_total", kind="job") == 3
    assert seen.sum("tenure_runs_given_up_total", kind="hand") == 1
    assert seen["tenure_runs_healed_total"] == 1


# --- rules


def test_promtool_takes_the_rules_and_their_tests_pass(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "deploy" / "prometheus"
    token = tmp_path / "token"
    token.write_text("x")
    config = (folder / "prometheus.yaml").read_text()
    for name in ("rules.yaml", "alerts.yaml"):
        config = config.replace(f"- {name}", f"- {folder / name}")
    (tmp_path / "prometheus.yaml").write_text(config.replace("/etc/prometheus/tenure.token", str(token)))
    for command in (
        ["check", "rules", "rules.yaml", "alerts.yaml"],
        ["check", "config", str(tmp_path / "prometheus.yaml")],
        ["test", "rules", "tests.yaml"],
    ):
        done = subprocess.run(["promtool", *command], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
