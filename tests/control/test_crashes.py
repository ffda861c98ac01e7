"""The daemon dies, the platform goes on: nothing is lost, nothing runs twice, and what ended meanwhile is told truly."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.cli.client import Client, Refused, Unreachable
from tenure.domain.errors import InvalidRequest
from tenure.ledger import Ledger, fold
from tenure.sdk.record import parse_time, read_record
from tenure.settings import Settings, load

from .conftest import House

KILLS = int(os.environ.get("TENURE_TEST_KILLS", "10"))  # `make soak` raises it to 200
JOBS = int(os.environ.get("TENURE_TEST_JOBS", "120"))


def test_a_job_outlives_the_platform_and_is_adopted(home: Path):
    house = House(home).open()
    gate = house.gate()
    job = house.gpu(*gate.argv("echo up", "echo done"))
    house.wait_out(job, "up")
    house.close(keep_jobs=True)
    house.open(card=None)  # a plain start knows the declared card
    gate.open()
    shown = house.wait(job)
    assert (shown["outcome"], len(shown["attempts"])) == ("completed", 1)
    assert "AttemptAdopted" in [e.kind for e in house.platform.ledger.events(job_id=job)]
    house.check_laws()
    house.close()


def test_what_ended_without_a_platform_has_its_true_code_and_time(home: Path):
    house = House(home).open()
    gate = house.gate()
    job = house.gpu(*gate.argv("echo up", "exit 5"))
    house.wait_out(job, "up")
    house.close(keep_jobs=True)
    gate.open()
    record = _until_closed(house.run_dir(job))
    back = time.time_ns() // 1000
    house.open(card=None)
    shown = house.wait(job)
    assert (shown["outcome"], shown["exit_code"], len(shown["attempts"])) == ("failed", 5, 1)
    assert record.closed is not None
    ended, told = parse_time(shown["ended_at"]), record.closed["at"]
    assert ended is not None
    assert ended <= told <= back, "the end is when it ended, not when it was noticed"
    house.close()


def test_down_stops_what_runs_and_the_next_start_goes_on(home: Path):
    house = House(home).open()
    job = house.gpu("bash", "-c", "echo attempt $TENURE_ATTEMPT; sleep 60", grace="1s")
    house.wait_out(job, "attempt 1")
    house.close()
    assert read_record(house.run_dir(job)).outcome == "interrupted"
    house.open(card=None)
    house.wait_out(job, "attempt 2", attempt=2)
    evicted = house.show(job)["attempts"][0]["evicted"]
    assert evicted["reason"] == "PlatformStopped"
    house.cancel(job, grace_s=0.5)
    house.wait(job)
    house.check_laws()
    house.close()


def test_a_copy_of_the_home_never_touches_the_processes_of_the_original(home: Path, tmp_path: Path):
    """As after a power loss, or when somebody restores a backup beside the living original."""
    house = House(home).open()
    job = house.gpu("bash", "-c", "echo up; sleep 60")
    house.wait_out(job, "up")
    subprocess.run(["cp", "-a", str(home), str(tmp_path / "copy")], check=True)
    copy = House(tmp_path / "copy").open(card=None)
    copy.until("the copy's attempt is told interrupted", lambda: copy.show(job)["attempts"][0]["outcome"])
    first = copy.show(job)["attempts"][0]
    assert first["outcome"] == "interrupted"
    assert house.show(job)["state"] == "running"
    assert len(house.show(job)["attempts"]) == 1
    copy.cancel(job, grace_s=0.5)
    copy.wait(job)
    copy.close()
    assert house.show(job)["state"] == "running"
    house.cancel(job, grace_s=0.5)
    assert house.wait(job)["outcome"] == "cancelled"
    house.close()


def test_after_a_power_loss_nothing_is_signalled_and_the_work_goes_on(home: Path, tmp_path: Path):
    """The state as it lay on the disk, found by another boot: what ran then cannot run now."""
    house = House(home).open()
    job = house.gpu("bash", "-c", "echo attempt $TENURE_ATTEMPT; exec sleep 60")
    house.wait_out(job, "attempt 1")
    subprocess.run(["cp", "-a", str(home), str(tmp_path / "disk")], check=True)
    after = House(tmp_path / "disk").open(card=None, TENURE_BOOT_ID="another-boot")
    after.wait_out(job, "attempt 2", attempt=2)
    first = after.show(job)["attempts"][0]
    assert (first["outcome"], first["reason"]) == ("interrupted", "MachineRestarted")
    assert house.show(job)["state"] == "running"
    for each in (after, house):
        each.cancel(job, grace_s=0.5)
        assert each.wait(job)["outcome"] == "cancelled"
        each.check_laws()
        each.close()


def test_a_lost_supervisor_interrupts_its_attempt_and_the_job_comes_back(home: Path):
    house = House(home).open()
    job = house.gpu("bash", "-c", "echo attempt $TENURE_ATTEMPT; exec sleep 60")
    house.wait_out(job, "attempt 1")
    lines = (house.run_dir(job) / "supervisor.jsonl").read_text().splitlines()
    pid = next(json.loads(line)["pid"] for line in lines if '"opened"' in line)
    os.kill(pid, signal.SIGKILL)
    house.wait_out(job, "attempt 2", attempt=2)
    first = house.show(job)["attempts"][0]
    assert (first["outcome"], first["reason"]) == ("interrupted", "SupervisorLost")
    assert read_record(house.run_dir(job)).outcome == "interrupted"
    house.cancel(job, grace_s=0.5)
    house.wait(job)
    house.check_laws()
    house.close()


@pytest.mark.parametrize("asked", ["cancelling", "evicting"])
def test_a_stop_under_way_is_not_forgotten_and_frees_nothing_early(home: Path, asked: str):
    """The next daemon finds a job on its way out: its processes still hold the card, and so does it."""
    house = House(home).open()
    gate = house.gate()
    job = house.gpu(*gate.argv("trap '' TERM; echo $$ up"), shares=8, memory="16Gi", grace="60s")
    house.wait_out(job, "up")
    pid = house.out(job).split()[0]
    if asked == "cancelling":
        house.cancel(job)
    after = house.gpu(
        "sh", "-c", f"kill -0 {pid} && echo there || echo gone", shares=8, memory="16Gi", priority="training"
    )
    house.wait(job, asked)
    house.close(keep_jobs=True)
    house.open(card=None)
    assert house.show(job)["state"] == asked
    assert house.show(after)["state"] == "queued"
    gate.open()
    house.wait(after)
    assert house.out(after) == "gone\n"
    first = house.show(job)["attempts"][0]
    outcome = "cancelled" if asked == "cancelling" else "interrupted"
    assert (first["outcome"], read_record(house.run_dir(job)).outcome) == (outcome, outcome)
    assert first["reason"] != "NeverStarted"
    house.wait(job)  # by itself, and where it was interrupted once more
    house.check_laws()
    house.close()


def test_what_ended_while_nothing_could_be_written_is_told_when_there_is_room_again(house: House):
    gate = house.gate()
    job = house.gpu(*gate.argv("echo up", "exit 3"))
    house.wait_out(job, "up")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limits[1]))  # as a full disk, for this process alone
    try:
        gate.open()
        _until_closed(house.run_dir(job))
        house.until(
            "the ledger took nothing, and neither when asked again", lambda: house.platform.conductor.faults > 1
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    shown = house.wait(job)
    assert (shown["outcome"], shown["exit_code"], len(shown["attempts"])) == ("failed", 3, 1)
    assert house.wait(house.gpu("true"))["outcome"] == "completed"


def test_what_could_not_be_written_down_is_not_started(house: House):
    """An admission that was rolled back was none, also where its job is cancelled before there is room again."""
    with house.refusing("INSERT ON attempts"):
        job = house.gpu("sleep", "60", shares=8, memory="16Gi")
        house.until("the loop has failed twice", lambda: house.platform.conductor.faults > 1)
        house.cancel(job)
    after = house.gpu("true", shares=8, memory="16Gi")
    assert house.wait(after)["outcome"] == "completed"
    assert not house.run_dir(job).exists(), "nobody was to run it"
    assert house.show(job)["attempts"] == []


def test_a_stop_that_could_not_be_written_down_is_asked_for_again(house: House):
    jobs = [house.gpu("sleep", "60", grace="1s") for _ in range(2)]
    for job in jobs:
        house.wait(job, "running")
    with house.refusing(f"UPDATE ON jobs WHEN NEW.id = '{jobs[1]}' AND NEW.state = 'evicting'"):
        house.platform.conductor.drain()
        house.until("the loop has failed", lambda: house.platform.conductor.faults > 0)
    assert house.platform.conductor.empty.wait(20), "the platform would never go down"
    assert [house.show(job)["state"] for job in jobs] == ["queued", "queued"]


@pytest.mark.timeout(900)
def test_random_kills_of_the_daemon_lose_nothing_and_run_nothing_twice(home: Path):
    settings = load({"TENURE_HOME": str(home), "PATH": os.environ["PATH"], "HOME": str(home.parent)})
    marks = home.parent / "ran.txt"
    rng = random.Random(20261129)
    submitted: dict[str, str] = {}
    stop = threading.Event()

    def submitting() -> None:
        with contextlib.closing(Client(settings)) as client:
            submit_all(client)

    def submit_all(client: Client) -> None:
        for number in range(JOBS):
            body = {
                "argv": ["sh", "-c", f'sleep 0.0{number % 10}; echo "$TENURE_JOB_ID" >> "$MARKS"'],
                "env": {"MARKS": str(marks)},
                "workdir": str(home.parent),
                "shares": 1 + number % 3,
                "gpu_memory": "1Gi",
            }
            while not stop.is_set():
                with contextlib.suppress(Unreachable, Refused, OSError):
                    answer = client.post("/jobs", body, headers={"Idempotency-Key": f"job-{number}"})
                    submitted[f"job-{number}"] = answer["id"]
                    break
                time.sleep(0.02)  # nobody is there to send an event

    thread = threading.Thread(target=submitting)
    with _daemon(settings) as daemon:
        thread.start()
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.0, 0.4))  # the kill comes at a random moment: that is the case
            daemon.kill()
            daemon.start()
        thread.join(timeout=300)
        stop.set()
        assert not thread.is_alive()
        _until_all_ended(settings, seconds=180)
    ledger = Ledger.open(settings.ledger_url)
    rows = {row.id: row for row in ledger.jobs(limit=JOBS + 1).items}
    assert len(rows) == JOBS == len(set(submitted.values()))
    assert set(rows) == set(submitted.values())
    assert {(str(r.outcome), r.attempts) for r in rows.values()} == {("completed", 1)}
    ran = Counter(marks.read_text().split())
    assert set(ran) == set(rows)
    assert set(ran.values()) == {1}
    folded = fold(ledger.events(limit=1_000_000))
    assert folded.jobs == rows
    assert not any(row.reservation for row in rows.values())
    ledger.close()


def test_a_kill_amid_many_submits_loses_only_what_nobody_was_told_of(home: Path):
    settings = load({"TENURE_HOME": str(home), "PATH": os.environ["PATH"], "HOME": str(home.parent)})
    clients = 8
    answered: list[str] = []
    enough = threading.Event()

    def submitting() -> None:
        with contextlib.closing(Client(settings)) as client, contextlib.suppress(Unreachable):
            while True:
                body = {"argv": ["true"], "hold": True, "workdir": str(home.parent)}
                answered.append(client.post("/jobs", body)["id"])
                if len(answered) >= 200:
                    enough.set()

    threads = [threading.Thread(target=submitting) for _ in range(clients)]
    with _daemon(settings) as daemon:
        for thread in threads:
            thread.start()
        assert enough.wait(60)
        daemon.kill()
        for thread in threads:
            thread.join(timeout=30)
            assert not thread.is_alive()
    with contextlib.closing(Ledger.open(settings.ledger_url)) as ledger:
        rows = {row.id: row for row in ledger.jobs(limit=10_000).items}
        assert len(set(answered)) == len(answered)
        assert set(answered) <= set(rows)
        assert len(rows) - len(answered) <= clients
        assert sorted(map(int, rows)) == list(range(1, len(rows) + 1))
        assert fold(ledger.events(limit=1_000_000)).jobs == rows


class _Daemon:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        read, write = os.pipe()
        env = {**os.environ, "TENURE_HOME": str(self._settings.home)}
        command = [sys.executable, "-m", "tenure.portal.daemon", "--card", "8x16Gi", "--ready-fd", str(write)]
        self._process = subprocess.Popen(command, env=env, pass_fds=[write], stdin=subprocess.DEVNULL)
        os.close(write)
        with os.fdopen(read) as ear:
            said = json.loads(ear.readline() or "{}")
        assert said.get("ready"), said

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def _daemon(settings: Settings) -> Iterator[_Daemon]:
    daemon = _Daemon(settings)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.kill()


def _until_all_ended(settings: Settings, *, seconds: float) -> None:
    end = time.monotonic() + seconds
    with contextlib.closing(Client(settings)) as client:
        while client.get("/jobs?limit=1")["items"]:
            assert time.monotonic() < end, client.get("/jobs?limit=5")
            time.sleep(0.1)


def _until_closed(run_dir: Path) -> object:
    end = time.monotonic() + 20
    while True:
        record = read_record(run_dir)
        if record.closed is not None:
            return record
        assert time.monotonic() < end
        time.sleep(0.02)  # the platform is down: nobody could tell us


def test_a_home_that_no_database_can_open_is_refused_with_the_bound(tmp_path: Path):
    deep = tmp_path.joinpath(*["x" * 100] * 5)
    with pytest.raises(InvalidRequest, match="up to 400 work"):
        House(deep).open()
    assert not deep.exists()
