"""`up`, `down`, `doctor` and the words around the platform itself, each on a home of its own."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import TENURE, Home, eventually, is_alive, processes_of


def test_up_is_ready_when_it_returns_and_down_leaves_nothing(private: Home) -> None:
    answer = private.up()
    assert answer.code == 0, answer
    assert re.search(r"tenure is up: http://127\.0\.0\.1:\d+", answer.out)
    daemon = private.pid()
    job = private.submit("--", "sh", "-c", "sleep 987 & setsid sleep 986")
    private.until(job, "running")
    assert private.tenure("down").code == 0
    assert not is_alive(daemon)
    assert processes_of(private.path) == []
    assert private.tenure("down").code == 0  # nothing runs: that is what was wanted
    assert private.tenure("ps").code == 69


def test_up_again_says_so_and_returns_0_and_in_the_foreground_69(home: Home) -> None:
    daemon = home.pid()
    answer = home.up()
    assert answer.code == 0
    assert "is running already" in answer.out
    assert home.pid() == daemon
    answer = home.tenure("up")
    assert answer.code == 69
    assert f'another daemon runs in {home.path} ({{"pid": {daemon}}})' in answer.err


def test_two_at_once_make_one_platform(private: Home) -> None:
    several = [private.spawn("up", "-d", "--card", "8x16Gi") for _ in range(3)]
    assert [(process.communicate(timeout=60), process.returncode)[1] for process in several] == [0, 0, 0]
    assert private.tenure("ps").code == 0


def test_up_while_the_last_one_goes_down_waits_for_its_end_and_starts_the_next(running: Home, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    job = running.submit("--", "sh", "-c", f"trap \"read line < '{gate}'; exit 0\" TERM; echo ready; sleep 600 & wait")
    eventually(lambda: "ready" in running.tenure("logs", job).out)
    first = running.pid()
    down = running.spawn("down")
    running.until(job, "evicting")
    impatient = running.tenure("up", "-d", "--timeout", "1s")
    assert (impatient.code, impatient.out) == (69, "")
    assert "is still going down" in impatient.err
    up = running.spawn("up", "-d")
    gate.write_text("go\n")
    assert (down.communicate(timeout=30), down.returncode)[1] == 0
    out, err = up.communicate(timeout=60)
    assert (up.returncode, err) == (0, b""), out
    assert b"is up" in out
    assert not is_alive(first)
    assert running.tenure("cancel", "--grace", "0", job).code == 0  # its second attempt would wait at the gate


@pytest.mark.parametrize("card", ["x", "0x16Gi", "8x-1Gi"])
def test_what_is_no_card_is_told_also_where_a_platform_runs_already(home: Home, card: str) -> None:
    answer = home.tenure("up", "-d", "--card", card)
    assert (answer.code, answer.out) == (2, ""), answer
    assert answer.err.startswith("tenure up: --card: ")


def test_a_flag_for_a_platform_that_runs_already_is_said_to_have_no_effect(home: Home) -> None:
    answer = home.tenure("up", "-d", "--port", "0", "--card", "2x2Gi")
    assert answer.code == 0
    assert answer.err.splitlines() == [
        f"tenure: {flag} has no effect on a platform that runs already" for flag in ("--card", "--port")
    ]


def test_a_home_whose_path_is_no_text_is_refused_by_every_verb(tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"\xff\xfe")
    for words in (["up", "-d"], ["ps"], ["doctor"]):
        answer = Home(place).tenure(*words)
        assert (answer.code, answer.out) == (2, ""), answer
        assert "TENURE_HOME" in answer.err
        assert "is not a path in UTF-8" in answer.err
    assert not place.exists()


def test_keep_jobs_leaves_them_and_the_next_up_adopts(running: Home, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    job = running.submit("--", "sh", "-c", f"read line < '{gate}'; exit 5")
    running.until(job, "running")
    assert running.tenure("down", "--keep-jobs").code == 0
    assert f"{job}.1" in running.tenure("doctor").out
    assert running.tenure("down", "--keep-jobs").code == 0
    gate.write_text("go\n")
    assert running.tenure("up", "-d").code == 0  # a plain start remembers its declared card
    assert running.tenure("wait", job, "--timeout", "20").code == 1
    shown = running.json("show", job)
    assert (shown["exit_code"], len(shown["attempts"])) == (5, 1)
    assert running.json("cards")[0]["source"] == "declared"


def test_down_interrupts_and_the_next_up_goes_on(running: Home) -> None:
    job = running.submit("--", "sh", "-c", 'test "$TENURE_ATTEMPT" -gt 1 || sleep 600')
    running.until(job, "running")
    assert running.tenure("down").code == 0
    assert running.up().code == 0
    assert running.tenure("wait", job, "--timeout", "30").code == 0
    first, second = running.json("show", job)["attempts"]
    assert (first["outcome"], second["outcome"], second["retry_of"]) == ("interrupted", "completed", first["run_id"])


def test_down_after_kill_9_ends_what_the_daemon_left(running: Home) -> None:
    job = running.submit("--", "sleep", "600")
    running.until(job, "running")
    daemon = running.pid()
    os.kill(daemon, signal.SIGKILL)
    eventually(lambda: not is_alive(daemon))
    assert processes_of(running.path) != []
    answer = running.tenure("down")
    assert answer.code == 0, answer
    assert f"its jobs go on ({job}.1)" in answer.err
    assert processes_of(running.path) == []


def test_down_says_what_keeps_the_platform_from_stopping(running: Home) -> None:
    """Nothing can be written, as on a full disk: who waits is told why, once, and the end comes when it can be written."""
    job = running.submit("--", "sleep", "600")
    running.until(job, "running")
    daemon = running.pid()
    limits = resource.prlimit(daemon, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    down = running.spawn("down", "--timeout", "30s")
    try:
        assert down.stderr is not None
        assert re.search(rb"cannot stop yet: the ledger at .* is not usable now", down.stderr.readline())
        assert down.poll() is None
    finally:
        resource.prlimit(daemon, resource.RLIMIT_FSIZE, limits)
    _, rest = down.communicate(timeout=60)
    assert (down.returncode, rest.count(b"cannot stop")) == (0, 0)
    assert processes_of(running.path) == []


def test_down_waits_for_no_tree_that_is_still_being_read(running: Home, tmp_path: Path) -> None:
    """Its git waits for a pipe that stays silent until the platform has gone: its submitter is refused, and nobody waits."""
    tree = tmp_path / "tree"
    subprocess.run(["git", "init", "-q", tree], check=True)
    config = tree / ".git" / "config"
    config.unlink()
    os.mkfifo(config)
    submitter = running.spawn("submit", "--", "true", cwd=tree)
    pipe = os.open(config, os.O_WRONLY)  # returns once git reads
    began = time.monotonic()
    try:
        assert running.tenure("down").code == 0
        assert time.monotonic() - began < 19  # git is given 20 s
        out, err = submitter.communicate(timeout=20)
        assert (submitter.returncode, out) == (69, b"")
        assert b"going down; nothing was submitted" in err
    finally:
        os.close(pipe)
    assert running.up().code == 0
    assert running.json("ps", "-a") == []


def test_down_without_rest_goes_by_the_lock(running: Home) -> None:
    daemon = running.pid()
    (running.path / "daemon" / "api.sock").unlink()
    answer = running.tenure("down")
    assert answer.code == 0
    assert f"asking process {daemon} by signal" in answer.err
    assert not is_alive(daemon)


def test_after_kill_9_a_plain_up_works_and_a_stale_pid_is_nobody(running: Home) -> None:
    daemon = running.pid()
    os.kill(daemon, signal.SIGKILL)
    eventually(lambda: not is_alive(daemon))
    assert running.tenure("ps").code == 69
    with subprocess.Popen(["sleep", "60"]) as stranger:  # who has the dead daemon's pid by now
        (running.path / "daemon" / "lock").write_text(json.dumps({"pid": stranger.pid}))
        assert running.tenure("down").code == 0
        assert stranger.poll() is None
        stranger.kill()
    assert running.up().code == 0
    assert running.ok("run", "--", "echo", "hi") == "hi\n"


def test_a_taken_port_is_69_with_the_reason(private: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        answer = private.up("--port", str(port))
    assert answer.code == 69
    assert f"cannot listen on 127.0.0.1:{port}" in answer.err
    assert processes_of(private.path) == []


def test_a_home_that_cannot_be_written_is_69_with_the_reason(private: Home) -> None:
    answer = private.tenure("up", "-d", env={"TENURE_HOME": "/proc/nowhere"})
    assert answer.code == 69
    assert "TENURE_HOME must be a place that you may write" in answer.err


def test_a_home_that_is_a_file_is_69_with_the_reason(private: Home) -> None:
    private.path.write_text("")
    answer = private.up()
    assert answer.code == 69
    assert "TENURE_HOME must be a place that you may write" in answer.err
    private.path.unlink()


def test_a_bad_policy_is_told_with_file_and_field(private: Home) -> None:
    (private.path / "policy").mkdir(parents=True)
    (private.path / "policy" / "mine.yaml").write_text(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: q}\nspec: {cohrt: c}\n"
    )
    answer = private.up()
    assert answer.code == 69
    assert "mine.yaml" in answer.err
    assert "cohrt" in answer.err


@pytest.mark.parametrize(
    ("flag", "said"), [(("--card", "eight"), "--card 'eight'"), (("--port", "high"), "is no port")]
)
def test_a_bad_flag_is_2(private: Home, flag: tuple[str, str], said: str) -> None:
    answer = private.tenure("up", "-d", *flag)
    assert (answer.code, said in answer.err) == (2, True), answer


def test_in_the_foreground_ctrl_c_stops_it(private: Home) -> None:
    process = private.spawn("up", "--card", "8x16Gi")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"tenure is up: http://")
    assert private.tenure("ps").code == 0
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert processes_of(private.path) == []


def test_doctor_looks_at_every_part(home: Home) -> None:
    findings = {finding["name"]: finding for finding in home.json("doctor")}
    assert {
        "home",
        "disk",
        "daemon",
        "version",
        "cards",
        "cgroup",
        "python",
        "git",
        "supervisors",
        "ledger",
        "tokens",
    } <= set(findings)
    assert {findings[name]["verdict"] for name in ("home", "daemon", "version", "python", "ledger", "tokens")} == {"ok"}
    assert "declared, not measured" in findings["cards"]["message"]
    token = home.path / "tokens" / "operator"
    token.chmod(0o644)
    answer = home.tenure("doctor")
    token.chmod(0o600)
    assert answer.code == 1
    assert re.search(r"^fail +tokens +others can read", answer.out, re.M)


def test_doctor_finds_a_damaged_ledger_and_a_platform_that_is_away(running: Home) -> None:
    assert running.tenure("down").code == 0
    assert "tenure up -d" in running.ok("doctor")
    ledger = running.path / "ledger.sqlite3"
    with ledger.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    answer = running.tenure("doctor")
    assert answer.code == 1
    assert re.search(r"^fail +ledger ", answer.out, re.M)


def test_the_token_opens_the_door_over_tcp(home: Home) -> None:
    token = home.ok("token").strip()
    assert (home.path / "tokens" / "operator").stat().st_mode & 0o777 == 0o600
    url = json.loads((home.path / "daemon" / "address.json").read_text())["url"]
    far = {"TENURE_URL": url, "TENURE_HOME": "/nonexistent", "TENURE_TOKEN": token}
    assert home.tenure("run", "--", "echo", "far", env=far).out == "far\n"
    assert home.tenure("ps", env={**far, "TENURE_TOKEN": "wrong"}).code == 1
    assert home.tenure("ps", env={**far, "TENURE_URL": "http://127.0.0.1:1"}).code == 69
    assert "TENURE_URL points" in home.tenure("down", env=far).err
    created = home.ok("token", "create", "ci").strip()
    assert home.tenure("ps", env={**far, "TENURE_TOKEN": created}).code == 0
    assert {row["name"]: row["role"] for row in home.json("token", "ls")} == {"ci": "user", "operator": "operator"}
    assert home.tenure("token", "revoke", "ci").code == 0
    assert home.tenure("ps", env={**far, "TENURE_TOKEN": created}).code == 1
    assert home.ok("token", "login").startswith(url)


def test_policy_is_checked_without_a_platform_and_reloaded_with_one(home: Home, tmp_path: Path) -> None:
    assert "would be taken" in home.ok("policy", "check", str(home.path / "policy"))
    (tmp_path / "bad.yaml").write_text("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueu\nmetadata: {name: q}\n")
    answer = home.tenure("policy", "check", str(tmp_path))
    assert answer.code == 1
    assert "ClusterQueue" in answer.err
    assert json.loads(home.tenure("policy", "check", str(tmp_path), "-o", "json").out)["ok"] is False
    assert "kind: ClusterQueue" in home.ok("policy", "show")
    with os.fdopen(os.memfd_create("policy"), "w") as pipe:  # as `tenure policy show | tenure policy check /dev/stdin`
        pipe.write(home.ok("policy", "show"))
        pipe.flush()
        assert "would be taken" in home.ok("policy", "check", f"/proc/{os.getpid()}/fd/{pipe.fileno()}")
    spec = {"command": ["serve", "{port}"], "env": {"HF_TOKEN": "hf_secret"}}
    model = home.path / "policy" / "small.json"
    model.write_text(json.dumps({"apiVersion": "tenure.dev/v1", "kind": "Model", "metadata": {"name": "small"}, "spec": spec}))  # fmt: skip
    assert home.tenure("policy", "reload").code == 0
    shown = home.ok("policy", "show")
    assert "kind: Model" in shown
    assert "HF_TOKEN" in shown
    assert "hf_secret" not in shown
    spec["queueName"] = "defualt"
    model.write_text(json.dumps({"apiVersion": "tenure.dev/v1", "kind": "Model", "metadata": {"name": "small"}, "spec": spec}))  # fmt: skip
    for words in (("check", str(home.path / "policy")), ("reload",)):  # it is taken, and whoever did it hears of it
        answer = home.tenure("policy", *words)
        assert answer.code == 0
        assert "small.json:1 (document 1): spec.queueName: warning: there is no LocalQueue" in answer.err
        assert 'did you mean "default"?' in answer.err
    told = home.json("policy", "reload")["problems"]
    assert [(Path(one["file"]).name, one["field"], one["severity"]) for one in told] == [
        ("small.json", "spec.queueName", "warning")
    ]
    model.unlink()
    assert home.tenure("policy", "reload").code == 0
    bad = home.path / "policy" / "bad.yaml"
    bad.write_text((tmp_path / "bad.yaml").read_text())
    answer = home.tenure("policy", "reload")
    bad.unlink()
    assert answer.code == 2
    assert "bad.yaml" in answer.err
    assert home.tenure("ps").code == 0


def test_version_is_both(home: Home) -> None:
    said = home.json("version")
    assert said["version"] == said["platform"]
    assert home.ok("--version").startswith("tenure ")


def test_a_live_view_follows_the_diary(home: Home) -> None:
    process = home.spawn("ps", "--watch")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"ID ")
    job = home.submit("--name", "seen", "--", "sleep", "600")
    for line in process.stdout:
        if line.startswith(job.encode() + b" ") and b" R " in line:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_the_program_is_where_the_contract_says() -> None:
    assert TENURE.exists()
