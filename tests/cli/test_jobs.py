"""The verbs on jobs, and the shapes that scripts rely on."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from .conftest import TENURE, Home, eventually

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
PS = {
    "id", "name", "state", "reason", "outcome", "exit_code", "queue", "priority_class", "project", "submitted_at", "admitted_at", "started_at", "ended_at",
    "attempts", "run_id",
}  # fmt: skip


def done(home: Home, *words: str) -> str:
    """A job that has ended."""
    job = home.submit(*words)
    assert home.tenure("wait", job).code in (0, 1)
    return job


def test_submit_prints_the_id_and_nothing_else(home: Home) -> None:
    answer = home.tenure("submit", "--time", "5", "--", "true")
    assert re.fullmatch(r"\d+\n", answer.out)
    assert "minutes" in answer.err  # what a bare number was taken for is a note, and notes are chatter


def test_ps_lists_the_live_and_with_all_the_ended(home: Home) -> None:
    ended = done(home, "--name", "quick", "--", "true")
    live = home.submit("--name", "slow", "--", "sleep", "600")
    home.until(live, "running")
    assert home.ok("ps", "-o", "name").split() == [live]
    listed = {job["id"]: job for job in home.json("ps", "-a")}
    assert {ended, live} <= set(listed)
    job = listed[ended]
    assert set(job) >= PS
    assert (job["state"], job["outcome"], job["exit_code"], job["attempts"], job["run_id"]) == (
        "ended",
        "completed",
        0,
        1,
        f"{ended}.1",
    )
    assert all(TIME.fullmatch(job[key]) for key in ("submitted_at", "admitted_at", "started_at", "ended_at"))
    table = home.ok("ps", "-a")
    assert re.search(rf"^{ended} +quick +CD ", table, re.M)
    assert re.search(rf"^{live} +slow +R ", table, re.M)
    assert "\x1b" not in table


def test_show_adds_the_spec_and_every_attempt(home: Home) -> None:
    job = done(home, "--no-requeue", "--", "sh", "-c", "exit 7")
    shown = home.json("show", job)
    assert set(shown) >= PS | {"spec"}
    (attempt,) = shown["attempts"]
    assert set(attempt) >= {
        "number",
        "run_id",
        "state",
        "outcome",
        "exit_code",
        "signal",
        "started_at",
        "ended_at",
        "evicted",
        "retry_of",
    }
    assert (attempt["number"], attempt["outcome"], attempt["exit_code"], attempt["evicted"]) == (1, "failed", 7, None)
    assert shown["spec"]["argv"] == ["sh", "-c", "exit 7"]
    assert f"job {job} " in home.ok("show", job)


def test_why_says_who_is_in_the_way(home: Home) -> None:
    holder = home.submit("--name", "holder", "--shares", "8", "--gpu-memory", "1Gi", "--", "sleep", "600")
    home.until(holder, "running")
    job = home.submit("--name", "waits", "--shares", "1", "--gpu-memory", "1Gi", "--", "true")
    said = eventually(lambda: (w := home.json("why", job))["blockers"] and w["reason"] == "WaitingForQuota" and w)
    assert set(said) >= {
        "id",
        "state",
        "reason",
        "message",
        "position",
        "blockers",
        "expected_start",
        "counterfactuals",
        "history",
    }
    assert said["state"] == "queued"
    assert holder in {who["id"] for blocker in said["blockers"] for who in blocker["held_by"]}
    text = home.ok("why", job)
    assert f"held by {holder} holder" in text
    assert len(text.splitlines()) <= 24
    (general,) = [queue for queue in home.json("queue") if queue["name"] == "general"]
    assert [waiting["id"] for waiting in general["jobs"]] == [job]
    assert set(general["resources"][0]) >= {"nominal", "used", "borrowed", "lent"}
    assert re.search(rf"1 +{job} +waits", home.ok("queue"))
    (card,) = home.json("top")
    assert card["source"] == "declared"
    assert [(who["id"], who["shares"]) for who in card["holders"]] == [(holder, 8)]
    assert "declared, not measured" in home.ok("top", "--once")
    assert "declared, not measured" in home.ok("cards")


def test_logs_come_out_on_the_stream_they_went_in(home: Home) -> None:
    job = done(home, "--", "sh", "-c", "printf 'a\\nb\\nc\\n'; echo oops >&2")
    answer = home.tenure("logs", job)
    assert (answer.out, answer.err) == ("a\nb\nc\n", "oops\n")
    assert home.ok("logs", job, "--tail", "2", "--stdout") == "b\nc\n"
    assert home.ok("logs", job, "--stderr") == "oops\n"
    assert home.ok("follow", job, "--stdout") == "a\nb\nc\n"
    assert home.tenure("logs", job, "--attempt", "5").code == 2


def test_logs_of_an_array_are_asked_for_by_task(home: Home) -> None:
    array = done(home, "--array", "1-2", "--", "sh", "-c", "echo task $TENURE_ARRAY_TASK_ID")
    answer = home.tenure("logs", array)
    assert (answer.code, "--task K" in answer.err) == (2, True)
    assert home.ok("logs", array, "--task", "2") == home.ok("logs", f"{array}_2") == "task 2\n"


def test_cancel_is_one_answer_for_each_time_it_comes(home: Home) -> None:
    queued = home.submit("--hold", "--", "true")
    assert home.tenure("cancel", queued, "--reason", "not needed").code == 0
    shown = home.json("show", queued)
    assert (shown["state"], shown["outcome"], shown["attempts"]) == ("ended", "cancelled", [])
    assert "not needed" in shown["message"]
    assert home.tenure("cancel", queued).code == 0  # twice is once
    ended = done(home, "--", "true")
    answer = home.tenure("cancel", ended)
    assert answer.code == 1
    assert "already ended (completed)" in answer.err
    running = home.submit("--", "sleep", "600")
    home.until(running, "running")
    assert home.tenure("stop", running, "--grace", "2s").code == 0
    assert home.tenure("wait", running).code == 1
    assert home.json("show", running)["outcome"] == "cancelled"


def test_a_job_that_is_not_there_is_a_usage_error_and_the_others_are_served(home: Home) -> None:
    job = home.submit("--hold", "--", "true")
    answer = home.tenure("cancel", "999999", job, "-o", "name")
    assert answer.code == 2
    assert "there is no job 999999" in answer.err
    assert answer.out.split() == [job]
    assert home.tenure("show", "999999").code == 2


def test_hold_and_release(home: Home) -> None:
    job = home.submit("--hold", "--", "true")
    assert eventually(lambda: home.json("show", job)["reason"] == "Suspended")
    assert home.tenure("release", job).code == 0
    assert home.tenure("wait", job, "--timeout", "20").code == 0
    answer = home.tenure("hold", job)
    assert (answer.code, "only queued jobs" in answer.err) == (1, True)


def test_release_at_a_time_waits_for_it(home: Home) -> None:
    job = home.submit("--hold", "--", "true")
    assert home.tenure("release", job, "--at", "now+1hour").code == 0
    assert eventually(lambda: home.json("show", job)["reason"] == "WaitingForBeginTime")
    assert home.tenure("release", job, "--at", "whenever").code == 2


def test_retry_is_a_new_job_that_links_to_the_old(home: Home) -> None:
    job = done(home, "--no-requeue", "--name", "again", "--", "false")
    again = home.ok("retry", job, "-o", "name").strip()
    assert int(again) > int(job)
    assert home.json("show", again)["retry_of"] == job
    assert home.tenure("wait", again).code == 1
    assert home.tenure("retry", home.submit("--hold", "--", "true")).code == 1


def test_wait_says_by_its_code_how_it_went(home: Home) -> None:
    good, bad = home.submit("--", "true"), home.submit("--no-requeue", "--", "false")
    assert home.tenure("wait", good).code == 0
    assert home.tenure("wait", good, bad).code == 1
    slow = home.submit("--", "sleep", "600")
    assert home.tenure("wait", slow, "--timeout", "0.3").code == 124
    assert home.tenure("wait", "999999").code == 2
    assert [job["outcome"] for job in json.loads(home.tenure("wait", good, bad, "-o", "json").out)] == [
        "completed",
        "failed",
    ]


def test_an_array_is_one_id_and_many_tasks(home: Home) -> None:
    answer = home.json("submit", "--array", "1-3%2", "--", "true")
    assert (answer["array"]["size"], answer["array"]["limit"]) == (3, 2)
    assert answer["tasks"] == [f"{answer['id']}_{k}" for k in (1, 2, 3)]
    assert home.tenure("wait", answer["id"]).code == 0
    shown = home.json("show", answer["id"])
    assert [(task["state"], task["outcome"]) for task in shown["tasks"]] == [("ended", "completed")] * 3


def test_the_newest_job_has_short_names(home: Home) -> None:
    first = done(home, "--", "true")
    second = home.json("submit", "--array", "1-2", "--", "true")["id"]
    assert home.ok("show", "@~1", "-o", "name").strip() == first
    assert home.json("show", "@")["id"] == home.json("get", "last")["id"] == second
    assert home.tenure("show", "@~100000").code == 2
    third = home.submit("--after", "@", "--", "true")
    assert home.json("show", third)["spec"]["after"][0]["job"] == second


def test_the_same_key_is_the_same_job_and_another_request_a_conflict(home: Home) -> None:
    words = ("--idempotency-key", "one of a kind", "--", "true")
    job = home.submit(*words)
    assert home.submit(*words) == job
    answer = home.tenure("submit", "--idempotency-key", "one of a kind", "--", "false")
    assert answer.code == 1
    assert answer.out == ""


def test_a_key_answers_from_another_shell_too_and_the_job_keeps_its_first_environment(home: Home) -> None:
    words = ("submit", "--idempotency-key", "came back", "--", "sh", "-c", "echo $SSH_CLIENT")
    first, again = (home.ok(*words, env={"SSH_CLIENT": f"10.0.0.7 {port} 22"}).strip() for port in (40001, 40002))
    assert again == first
    assert home.tenure("wait", first).code == 0
    assert home.ok("logs", first) == "10.0.0.7 40001 22\n"
    named = home.tenure("submit", "--idempotency-key", "came back", "--env", "A=b", *words[3:])
    assert (named.code, named.out) == (1, "")


def test_a_client_that_dies_leaves_one_job_or_none_and_its_key_answers(home: Home) -> None:
    words = ("--name", "once", "--idempotency-key", "died on the way", "--hold", "--", "true")
    for delay in (0.02, 0.05, 0.08, 0.1, 0.12, 0.15):
        with home.spawn("submit", *words) as process:
            try:
                process.wait(delay)
            except subprocess.TimeoutExpired:
                process.kill()
    job = home.submit(*words)
    assert [found["id"] for found in home.json("ps", "-a", "--name", "once")] == [job]


def test_a_cancel_while_it_starts_is_the_end(home: Home) -> None:
    jobs = []
    for _ in range(5):
        jobs.append(home.submit("--", "sleep", "600"))
        assert home.tenure("cancel", "--grace", "1s", jobs[-1]).code == 0
    assert home.tenure("wait", *jobs, "--timeout", "20").code == 1
    assert {home.json("show", job)["outcome"] for job in jobs} == {"cancelled"}


def test_a_cancel_while_it_is_being_preempted_is_the_end(home: Home, tmp_path: Path) -> None:
    gate, ready = tmp_path / "gate", tmp_path / "ready"
    os.mkfifo(gate)
    whole = ("--shares", "8", "--gpu-memory", "1Gi")
    stubborn = f"trap '' TERM; touch '{ready}'; read line < '{gate}'"
    victim = home.submit("--priority", "batch", "--grace", "60s", *whole, "--", "sh", "-c", stubborn)
    eventually(ready.exists)
    taker = home.submit("--priority", "training", *whole, "--", "true")
    home.until(victim, "evicting")
    assert home.tenure("cancel", victim).code == 0
    assert home.json("show", victim)["state"] == "cancelling"
    gate.write_text("go\n")
    assert home.tenure("wait", taker, "--timeout", "20").code == 0
    shown = home.until(victim, "ended")
    assert shown["outcome"] == "cancelled"
    assert len(shown["attempts"]) == 1


def test_a_gpu_job_without_card_memory_is_refused_with_the_flag_to_add(home: Home) -> None:
    answer = home.tenure("submit", "--shares", "1", "--", "true")
    assert (answer.code, answer.out) == (2, "")
    assert "--gpu-memory" in answer.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--queue", "defualt"], "default"),
        (["--gpu-memory", "lots"], "--gpu-memory"),
        (["--time", "soon"], "--time"),
        (["--gang", "some"], "--gang"),
        (["--after", "nothing:1"], "afterany"),
        (["--priority", "trainig"], "training"),
    ],
)
def test_what_the_platform_refuses_is_told_by_the_flag(home: Home, flags: list[str], said: str) -> None:
    answer = home.tenure("submit", *flags, "--", "true")
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


def test_more_than_any_quota_waits_with_its_own_reason(home: Home) -> None:
    job = home.submit("--shares", "8", "--gpu-memory", "900Gi", "--", "true")
    assert eventually(lambda: home.json("why", job)["reason"] == "ExceedsMaxQuota")


def test_a_script_runs_with_its_arguments_in_this_directory(home: Home, tmp_path: Path) -> None:
    (tmp_path / "my script.sh").write_text('#!/bin/sh\nprintf "%s|" "$@"; pwd\n')
    job = home.ok("submit", "my script.sh", "--name", "a b", cwd=tmp_path).strip()
    home.ok("wait", job)
    assert home.ok("logs", job) == f"--name|a b|{tmp_path}\n"
    assert home.json("show", job)["name"] == "my script.sh"


def test_an_sbatch_script_and_a_job_file_are_taken_with_flags_over_them(home: Home, tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text(
        "#!/bin/sh\n#SBATCH --job-name=theirs\n#SBATCH --time=00:10:00\necho $SLURM_JOB_NAME; pwd\n"
    )
    job = home.ok("submit", "--name", "mine", "train.sbatch", cwd=tmp_path).strip()
    home.ok("wait", job)
    assert home.ok("logs", job).splitlines() == ["mine", str(tmp_path)]
    (tmp_path / "job.yaml").write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: hello}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n"
        "      containers:\n      - {name: c, image: none, command: [echo, from-yaml]}\n"
    )
    job = home.ok("submit", "job.yaml", "--project", "p", cwd=tmp_path).strip()
    home.ok("wait", job)
    assert home.ok("logs", job) == "from-yaml\n"
    assert home.json("show", job)["project"] == "p"


def test_runs_are_listed_shown_and_compared(home: Home) -> None:
    first, second = (
        done(home, "--name", "one", "--", "true"),
        done(home, "--no-requeue", "--name", "two", "--", "false"),
    )
    listed = {run["run_id"]: run for run in home.json("runs", "ls", "--all")}
    assert listed[f"{first}.1"]["outcome"] == "completed"
    assert f"{second}.1" in home.ok("runs", "ls")
    assert [run["job_id"] for run in home.json("runs", "ls", "--job", first)] == [first]
    record = home.json("runs", "show", f"{second}.1")
    assert (record["run_id"], record["outcome"]) == (f"{second}.1", "failed")
    assert home.json("runs", "show", second) == record
    diff = home.json("runs", "diff", f"{first}.1", f"{second}.1")
    assert (diff["a"], diff["b"]) == (f"{first}.1", f"{second}.1")
    assert home.tenure("runs", "show", "999999.1").code == 2
    assert "outcome: failed" in home.ok("runs", "show", second)


def test_yaml_says_what_json_says(home: Home) -> None:
    job = done(home, "--name", "训练", "--", "true")
    assert yaml.safe_load(home.ok("show", job, "-o", "yaml")) == home.json("show", job)


def test_a_megabyte_of_environment_travels(home: Home) -> None:
    big = {f"BIG_{i}": "x" * 100_000 for i in range(10)}
    job = home.ok("submit", "--", "sh", "-c", 'printf %s "$BIG_9" | wc -c', env=big).strip()
    home.ok("wait", job)
    assert home.ok("logs", job, "--stdout").strip() == "100000"


def test_a_job_submits_another_to_the_same_platform(home: Home) -> None:
    outer = home.submit("--", str(TENURE), "submit", "--", "sh", "-c", "echo ${TENURE_RUN_DIR##*/}")
    home.ok("wait", outer)
    inner = home.ok("logs", outer, "--stdout").strip()
    home.ok("wait", inner)
    assert home.ok("logs", inner, "--stdout").strip() == f"{inner}.1"


def test_submit_and_watch_is_run_with_the_id_first(home: Home) -> None:
    answer = home.tenure("submit", "--watch", "--no-requeue", "--", "sh", "-c", "echo out; exit 5")
    first, rest = answer.out.split("\n", 1)
    assert (answer.code, first.isdecimal(), rest) == (5, True, "out\n")


def test_a_program_that_is_not_there_is_pointed_out_at_submit(home: Home) -> None:
    answer = home.tenure("submit", "--", "no-such-program")
    assert (answer.code, answer.out.strip().isdecimal()) == (0, True)
    assert "no-such-program: command not found" in answer.err


def on_a_terminal(home: Home, *words: str, **env: str) -> str:
    """What a person would see."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [str(TENURE), *words], env={**home.env, "TERM": "xterm", "COLUMNS": "60", **env}, stdout=slave, stderr=slave
    ):
        os.close(slave)
        seen = b""
        with open(master, "rb", buffering=0) as screen:
            try:
                while data := screen.read(65536):
                    seen += data
            except OSError:  # Linux's way to say that the other side has closed
                pass
    return seen.decode()


def test_colour_width_and_progress_are_for_terminals(home: Home) -> None:
    job = home.submit("--shares", "8", "--gpu-memory", "900Gi", "--", "true")
    seen = on_a_terminal(home, "ps")
    assert "\x1b[33mPD\x1b[0m" in seen
    assert "…" in seen
    plain = on_a_terminal(home, "ps", NO_COLOR="1")
    assert "\x1b" not in plain
    assert max(len(line) for line in plain.splitlines()) <= 60
    seen = on_a_terminal(home, "wait", job, "--timeout", "3")
    assert re.search(r"\r\x1b\[Kwaiting, [12]s: job", seen)
