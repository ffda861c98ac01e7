"""The default policy at work: who waits, who is taken from, who comes back."""

from __future__ import annotations

import json
import time
from datetime import datetime

from tenure.control import views
from tenure.domain.attempt import Stop, StopKind
from tenure.sdk.record import read_record

from .conftest import House

STUBBORN = "trap 'sleep 0.7; exit 0' TERM; echo ready; while :; do sleep 0.05; done"


def test_a_preemptor_starts_only_when_its_victim_has_left(house: House):
    victim = house.gpu("bash", "-c", STUBBORN, shares=6, memory="10Gi", priority="batch")
    house.wait_out(victim, "ready")
    preemptor = house.gpu("true", shares=4, memory="8Gi", priority="training")
    house.wait(preemptor)
    first = house.show(victim)["attempts"][0]
    assert first["outcome"] == "interrupted"  # an exit code of 0 after a stop is not the work's own end
    assert first["evicted"]["by"] == preemptor
    assert first["evicted"]["reason"] == "InClusterQueue"
    assert first["evicted"]["at"] <= first["ended_at"] <= house.show(preemptor)["started_at"]
    record = read_record(house.run_dir(victim))
    assert record.outcome == "interrupted"
    assert [(m["stop"], m["by"]) for m in record.stops] == [("preempt", preemptor)]
    again = house.wait(victim, "running")
    assert [a["number"] for a in again["attempts"]] == [1, 2]
    assert again["attempts"][1]["retry_of"] == f"{victim}.1"


def test_training_reclaims_what_a_model_borrowed_and_the_model_comes_back(house: House):
    model = house.gpu("sleep", "60", memory="12Gi", queue="large-model", priority="on-demand")
    house.wait(model, "running")
    other = house.gpu("sleep", "60", memory="2Gi", queue="large-model", priority="on-demand")
    house.wait_reason(other, "WaitingForQuota")  # of two models one fits
    house.cancel(other)
    batch = house.gpu("true", memory="8Gi", priority="batch")
    house.wait_reason(batch, "WaitingForQuota")
    assert house.show(model)["state"] == "running"  # batch does not evict it
    gate = house.gate()
    training = house.gpu(*gate.argv(), memory="10Gi", priority="training")
    house.wait(training, "running")
    evicted = house.show(model)["attempts"][0]["evicted"]
    assert (evicted["by"], evicted["reason"]) == (training, "InCohortReclamation")
    gate.open()
    house.wait(training)
    house.wait(batch)
    assert len(house.wait(model, "running")["attempts"]) == 2


def test_a_gang_is_all_or_none_and_its_death_names_the_rank(house: House):
    blocker = house.gpu("sleep", "60", shares=6)
    house.wait(blocker, "running")
    program = "echo $RANK of $WORLD_SIZE; touch said.$RANK; until [ -e said.3 ]; do sleep 0.05; done; exit $((RANK == 2 ? 7 : 0))"
    gang = house.gpu("bash", "-c", program, gang="4")
    house.wait_reason(gang, "WaitingForQuota")
    house.cancel(blocker)
    shown = house.wait(gang)
    assert (shown["outcome"], shown["exit_code"]) == ("failed", 7)
    assert shown["attempts"][0]["failed_rank"] == 2
    assert (house.run_dir(gang) / "stdout.3.log").read_text() == "3 of 4\n"


def test_an_elastic_gang_gives_up_its_surplus_before_it_is_taken(house: House):
    gang = house.gpu("bash", "-c", "sleep 60", gang="6:2", priority="batch", grace="2s")
    house.wait(gang, "running")
    training = house.gpu("sleep", "0.3", shares=5, priority="training")
    house.wait(training)
    shown = house.show(gang)
    assert shown["state"] == "running"
    assert len(shown["attempts"]) == 1
    kinds = [e["kind"] for e in views.events(house.platform, job=gang)]
    assert "JobShrunk" in kinds
    assert "JobPreempted" not in kinds


def test_nobody_starts_in_the_place_of_a_rank_that_has_yet_to_leave(house: House):
    stubborn = "if [ $RANK -gt 1 ]; then trap '' TERM; fi; echo up; while :; do sleep 0.05; done"
    gang = house.gpu("bash", "-c", stubborn, gang="6:2", priority="batch", grace="1s")
    house.wait(gang, "running")
    training = house.gpu("true", shares=5, priority="training")
    house.wait(training)
    journal = (house.run_dir(gang) / "supervisor.jsonl").read_text().splitlines()
    left = [line for line in map(json.loads, journal) if line["kind"] == "exited" and line["rank"] >= 3]
    assert len(left) == 3
    admitted = datetime.fromisoformat(house.show(training)["admitted_at"]).timestamp() * 1e6
    assert max(line["at"] for line in left) <= admitted


def test_what_waits_says_so_in_order(house: House):
    holder = house.gpu("sleep", "60", shares=8, priority="training")
    house.wait(holder, "running")
    low = house.gpu("true", priority="batch")
    high = house.gpu("true", priority="on-demand")
    house.wait_reason(low, "WaitingForQuota")
    house.wait_reason(high, "WaitingForQuota")
    general = next(q for q in views.queues(house.platform) if q["name"] == "general")
    assert [job["id"] for job in general["jobs"]] == [high, low]
    shares = next(r for r in general["resources"] if r["resource"] == "nvidia.com/gpu")
    assert (shares["nominal"], shares["used"]) == (8, 8)
    answer = views.why(house.platform, low)
    held = {h["id"] for b in answer["blockers"] for h in b["held_by"]}
    assert holder in held
    card = views.cards(house.platform)[0]
    assert (card["source"], card["memory_measured"], card["shares_free"]) == ("declared", None, 0)
    assert [h["id"] for h in card["holders"]] == [holder]


def test_a_job_cancelled_on_its_way_out_says_that_it_was_cancelled(house: House):
    """Its run was interrupted, because the cancel came when the processes had left; the job was cancelled all the same."""
    victim = house.gpu("bash", "-c", "echo ready; exec sleep 60", shares=8, memory="16Gi", priority="batch")
    house.wait_out(victim, "ready")
    with house.platform.conductor.lock:  # what the supervisor tells is heard, and cannot be written down yet
        live = house.platform.conductor.live[victim]
        house.platform.backend.stop(
            live.current_run, str(house.run_dir(victim)), Stop(kind=StopKind.PREEMPT, reason="Preempted", by="9")
        )
        end = time.monotonic() + 10
        while read_record(house.run_dir(victim)).outcome is None and time.monotonic() < end:
            time.sleep(0.02)
        house.cancel(victim, reason="not needed")
    shown = house.wait(victim)
    assert (shown["outcome"], shown["reason"]) == ("cancelled", "Cancelled")
    assert [(a["outcome"], a["reason"]) for a in shown["attempts"]] == [("interrupted", "Preempted")]
    assert read_record(house.run_dir(victim)).outcome == "interrupted"


def test_a_class_that_the_policy_gave_is_told_everywhere(house: House):
    holder = house.gpu("sleep", "60", shares=8, memory="16Gi")
    house.wait(holder, "running")
    waits = house.gpu("true", shares=8, memory="16Gi")
    house.wait_reason(waits, "WaitingForQuota")
    assert house.show(holder)["priority_class"] == "batch"
    assert [h["priority_class"] for card in views.cards(house.platform) for h in card["holders"]] == ["batch"]
    assert [j["priority_class"] for q in views.queues(house.platform) for j in q["jobs"]] == ["batch"]


def test_everybody_in_a_line_of_equals_is_listed_with_the_reason(house: House):
    holder = house.gpu("sleep", "60", shares=8)
    house.wait(holder, "running")
    base = house.answer("true", shares=1, gpu_memory="1Gi", array="1-50")["id"]
    house.wait_reason(f"{base}_1", "WaitingForQuota")
    everybody = {("WaitingForQuota", True)}

    def told() -> bool:
        listed = views.jobs(house.platform, array=base)["items"]
        return {(job["reason"], bool(job["message"])) for job in listed} == everybody and len(listed) == 50

    house.until("all of them say so", told)
