"""A job through the house: in, on, out, with every way to end told apart."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenure.control import verbs
from tenure.control.clock import from_wire
from tenure.domain.errors import Conflict, InvalidRequest, NotFound
from tenure.domain.events import Event
from tenure.sdk.record import read_record

from .conftest import ME, House


@pytest.mark.parametrize(
    ("script", "outcome", "code", "signal"),
    [
        ("exit 0", "completed", 0, None),
        ("exit 3", "failed", 3, None),
        ("kill -9 $$", "failed", 137, 9),
        ("kill -TERM $$", "failed", 143, 15),
    ],
)
def test_ends_are_told_apart_in_ledger_and_record(house: House, script: str, outcome: str, code: int, signal: int):
    job = house.submit("bash", "-c", script)
    shown = house.wait(job)
    assert (shown["outcome"], shown["exit_code"], shown["signal"]) == (outcome, code, signal)
    (attempt,) = shown["attempts"]
    assert (attempt["outcome"], attempt["exit_code"], attempt["evicted"]) == (outcome, code, None)
    record = read_record(house.run_dir(job))
    assert (record.outcome, record.run_id, record.job_id) == (outcome, f"{job}.1", job)
    assert {"os", "kernel", "cpus", "memory_bytes"} <= record.environment.keys()
    assert record.environment["card"] == "declared"
    assert shown["submitted_at"] <= shown["admitted_at"] <= shown["started_at"] <= shown["ended_at"]


def test_the_environment_says_who_and_where(house: House):
    job = house.gpu("sh", "-c", "env", env={"MINE": "a b"}, name='训练 "x" $(rm) \n')
    house.wait(job)
    env = dict(line.split("=", 1) for line in house.out(job).splitlines() if "=" in line)
    assert env["TENURE_RUN_DIR"] == str(house.run_dir(job))
    assert (env["TENURE_JOB_ID"], env["TENURE_ATTEMPT"], env["MINE"]) == (job, "1", "a b")
    assert env["CUDA_VISIBLE_DEVICES"] == "declared-0"
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", env["TRACEPARENT"])
    assert f"tenure.run.id={job}.1" in env["OTEL_RESOURCE_ATTRIBUTES"].split(",")
    assert house.show(job)["name"] == '训练 "x" $(rm) \n'


def test_a_job_without_shares_sees_no_card(house: House):
    job = house.submit("sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"')
    house.wait(job)
    assert house.out(job) == "[]\n"


def test_a_gpu_job_that_declares_no_memory_is_refused_with_the_flag(house: House):
    with pytest.raises(InvalidRequest, match="--gpu-memory") as refusal:
        house.submit("true", shares=1)
    assert refusal.value.field == "gpu_memory"


def test_a_misspelt_queue_is_refused_and_too_much_waits_with_another_reason(house: House):
    with pytest.raises(InvalidRequest, match="did you mean 'general'") as refusal:
        house.gpu("true", queue="genral")
    assert refusal.value.field == "queue"
    with pytest.raises(InvalidRequest, match="did you mean 'training'"):
        house.gpu("true", priority="trainign")
    much = house.gpu("true", memory="64Gi")
    shown = house.wait_reason(much, "ExceedsMaxQuota")
    assert "maximum capacity" in shown["message"]


def test_the_same_key_is_the_same_job_also_from_sixteen_threads(house: House):
    with ThreadPoolExecutor(16) as pool:
        ids = {a["id"] for a in pool.map(lambda _: house.answer("true", key="once"), range(32))}
    assert len(ids) == 1
    with pytest.raises(Conflict, match="another request"):
        house.answer("false", key="once")
    house.wait(ids.pop())
    assert len(list(house.platform.ledger.jobs().items)) == 1


def test_an_unknown_job_is_named(house: House):
    with pytest.raises(NotFound, match="no job 999"):
        house.show("999")


def test_arrays_run_every_task_and_keep_to_their_limit(house: House):
    # the first two are there together, or wait for each other in vain
    program = "touch up.$TENURE_ARRAY_TASK_ID; until [ -e up.1 ] && [ -e up.2 ]; do sleep 0.05; done; echo task $TENURE_ARRAY_TASK_ID; sleep 0.1"
    base = house.answer("sh", "-c", program, array="1-6%2")["id"]
    done = house.until("the array has ended", lambda: (s := house.show(base))["state"] == "ended" and s, seconds=30)
    assert done["array"]["outcomes"] == {"completed": 6}
    assert house.out(f"{base}_4") == "task 4\n"
    running, most = set(), 0
    for event in house.platform.ledger.events(limit=10_000):
        if event.kind == "JobStarted":
            running.add(event.job_id)
        elif event.kind == "JobEnded":
            running.discard(event.job_id)
        most = max(most, len(running))
    assert most == 2


def test_a_task_that_is_held_stands_in_no_other_tasks_way(house: House):
    """Neither one that waits for a place in its array, nor one that has it and waits for the card."""
    holder = house.gpu("sleep", "60", shares=8, memory="16Gi", priority="training")
    house.wait(holder, "running")
    base = house.answer("true", array="1-4%1", shares=1, gpu_memory="1Gi")["id"]
    first, second, third, fourth = (f"{base}_{index}" for index in range(1, 5))
    house.wait_reason(fourth, "WaitingForArrayLimit")
    for task in (second, first):  # one outside, and the one that was let in
        verbs.hold(house.platform, task, caller=ME)
    house.until("the next has the place", lambda: house.show(third)["reason"] != "WaitingForArrayLimit")
    house.cancel(holder, grace_s=0.2)
    for task in (third, fourth):
        assert house.wait(task)["outcome"] == "completed"
    assert {house.show(task)["reason"] for task in (first, second)} == {"Suspended"}
    verbs.release(house.platform, base, caller=ME)
    assert {house.wait(task)["outcome"] for task in (first, second)} == {"completed"}


def test_the_gates_remember_nobody_who_has_left(house: House):
    limited = house.answer("true", array="1-3%1")["id"]
    plain = house.answer("true", array="1-2")["id"]
    after = [house.submit("true", after=[f"afterany:{job}"]) for job in (limited, plain)]
    never = house.submit("true", after=[f"afternotok:{after[0]}"])
    for job in (*after, never):
        house.wait(job)
    gates = house.platform.conductor.gates
    names = [name for name, kept in vars(gates).items() if isinstance(kept, dict | set)]
    assert names, "this looks at the wrong thing"
    house.until("nothing is left", lambda: not any(vars(gates)[name] for name in names))


def test_dependencies_open_close_and_never_open(house: House):
    gate = house.gate()
    good, bad = house.submit(*gate.argv()), house.submit(*gate.argv(after="exit 1"))
    after_good = house.submit("true", after=[good])
    after_bad = house.submit("true", after=[f"afterok:{bad}"])
    anyhow = house.submit("true", after=[f"afterany:{bad}"])
    instead = house.submit("true", after=[f"afternotok:{bad}"])
    house.wait_reason(after_good, "WaitingForDependency")
    gate.open()
    for job in (after_good, anyhow, instead):
        assert house.wait(job)["outcome"] == "completed"
    never = house.wait(after_bad)
    assert never["outcome"] == "cancelled"
    assert "can never be met" in never["message"]
    assert never["attempts"] == []
    with pytest.raises(InvalidRequest, match="999"):
        house.submit("true", after=["999"])


def test_hold_keeps_out_and_release_lets_in(house: House):
    job = house.submit("true", hold=True)
    house.wait_reason(job, "Suspended")
    verbs.hold(house.platform, job, caller=ME)  # twice is once
    verbs.release(house.platform, job, caller=ME)
    assert house.wait(job)["outcome"] == "completed"
    with pytest.raises(Conflict, match="only queued jobs"):
        verbs.hold(house.platform, job, caller=ME)


def test_a_begin_time_is_waited_for(house: House):
    before = time.time_ns() // 1000
    soon, late = house.submit("true", begin="now+1seconds"), house.submit("true", begin="now+1hour")
    house.wait_reason(late, "WaitingForBeginTime")
    shown = house.wait(soon)
    assert from_wire(shown["started_at"]) - before >= 1_000_000
    assert house.show(late)["state"] == "queued"


def test_retry_is_a_new_job_that_links_to_the_old_one_and_has_its_checkpoints(house: House):
    job = house.submit("sh", "-c", 'ls "$TENURE_CHECKPOINT_DIR"; touch "$TENURE_CHECKPOINT_DIR/mark"; exit 1')
    house.wait(job)
    again = verbs.retry(house.platform, job, caller=ME)["id"]
    shown = house.wait(again)
    assert again != job
    assert shown["retry_of"] == job
    assert shown["attempts"][0]["retry_of"] == f"{job}.1"
    assert read_record(house.run_dir(again)).retry_of == f"{job}.1"
    assert house.out(again) == "mark\n"


def test_backoff_limit_retries_what_failed_and_counts(house: House):
    job = house.submit("sh", "-c", 'echo attempt $TENURE_ATTEMPT; test "$TENURE_ATTEMPT" = 2', backoff_limit=3)
    shown = house.wait(job)
    assert shown["outcome"] == "completed"
    assert [a["outcome"] for a in shown["attempts"]] == ["failed", "completed"]
    assert shown["attempts"][1]["retry_of"] == f"{job}.1"


def test_a_time_limit_ends_with_124(house: House):
    job = house.submit("sleep", "60", time="1s")
    shown = house.wait(job)
    assert (shown["outcome"], shown["exit_code"], shown["reason"]) == ("failed", 124, "TimeLimit")


def test_a_script_file_keeps_its_own_directory_and_what_it_exports(house: House):
    (house.home.parent / "sub").mkdir()
    text = (
        "#!/bin/bash\n#SBATCH -D sub\n#SBATCH --export=SEEN\necho $PWD $SEEN $HIDDEN $SLURM_JOB_NAME\n#SBATCH -J late\n"
    )
    job = house.answer(
        workdir=None,
        argv=None,
        file={"name": "a.sbatch", "text": text},
        cwd=str(house.home.parent),
        name="early",
        environment={"SEEN": "1", "HIDDEN": "2", "PATH": "/usr/bin:/bin"},
    )["id"]
    assert house.wait(job)["outcome"] == "completed"
    assert house.out(job) == f"{house.home.parent / 'sub'} 1 early\n"


def test_code_that_changed_between_submit_and_start_is_told(house: House):
    script = house.home.parent / "work.sh"
    script.write_text("echo first\n")
    blocker = house.gpu("sleep", "60", shares=8)
    house.wait(blocker, "running")
    job, same = house.gpu("sh", str(script)), house.gpu("sh", "-c", "true")
    house.wait_reason(job, "WaitingForQuota")
    script.write_text("echo second\n")
    house.cancel(blocker)
    house.wait(job)
    house.wait(same)
    after = house.gpu("sh", str(script), hold=True)
    script.write_text("echo third\n")
    verbs.release(house.platform, after, caller=ME)

    def told() -> list[Event]:
        return [e for e in house.platform.ledger.events(limit=1000) if e.kind == "CodeChanged"]

    # looks are taken in the order of the starts: with the last one told, all of them have been
    house.until("it is told of the last", lambda: after in [e.job_id for e in told()])
    assert [e.job_id for e in told()] == [job, after]
    assert "work.sh" in told()[0].message


def test_code_that_changed_is_told_of_a_job_that_had_ended_before_anybody_could_look(house: House):
    (house.home.parent / "short.sh").write_text("echo one\n")
    job = house.submit("sh", "short.sh", hold=True)
    (house.home.parent / "short.sh").write_text("echo two\n")
    verbs.release(house.platform, job, caller=ME)
    assert house.wait(job)["outcome"] == "completed"
    assert house.out(job) == "two\n"

    def told() -> list[str]:
        return [e.message for e in house.platform.ledger.events(job_id=job) if e.kind == "CodeChanged"]

    house.until("the change is in the diary", told)
    assert len(told()) == 1
    assert "short.sh" in told()[0]


def test_a_resource_that_no_queue_counts_is_named(house: House):
    told = house.answer("true", requests={"example.com/licence": "1"}, hold=True)["notes"]
    assert any("example.com/licence" in note and "general" in note for note in told)
    assert house.answer("true", hold=True)["notes"] == []


def test_values_that_are_no_text_are_refused(house: House):
    with pytest.raises(InvalidRequest, match="must be text"):
        house.submit("true", env={"A": None})
    with pytest.raises(InvalidRequest, match="must be text"):
        house.submit("true", labels={"a": 1})


def test_a_dependency_that_can_never_be_met_says_so_in_one_word(house: House):
    bad = house.submit("false")
    house.wait(bad)
    never = house.wait(house.submit("true", after=[bad]))
    assert (never["outcome"], never["reason"]) == ("cancelled", "DependencyNeverSatisfied")
