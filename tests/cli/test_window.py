"""`tenure window` and `--window`: claims at the command line, with people who go away and a daemon that is killed."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import TENURE, Home, eventually, is_alive

SLEEP = ("--shares", "1", "--gpu-memory", "1Gi", "--grace", "2s", "--", "sleep", "60")


def window(home: Home, id: str) -> dict[str, Any]:
    return next(row for row in home.json("window", "ls", "--all") if row["id"] == id)


def test_claim_look_and_let_go(home: Home) -> None:
    model = home.submit("--priority", "on-demand", *SLEEP)
    home.until(model, "running")
    id = home.ok("window", "claim", "--for", "30m").strip()
    shown = home.ok("window", "ls")
    assert id in shown
    assert "active" in shown
    end = window(home, id)["ends_at"][:19]
    later = home.ok("window", "claim", "--begin", "now+3hours").strip()
    begin = window(home, later)["begin_at"][:19]
    for verb in (("cards",), ("top", "--once"), ("queue",)):  # announced wherever somebody looks for a place
        said = home.ok(*verb)
        assert re.search(f"window {id} of \\S+ until {end}Z", said), said
        assert re.search(f"window {later} of \\S+ begins at {begin}Z", said), said
    home.ok("window", "release", later)
    assert home.until(model, "queued")["reason"] == "WaitingForWindow"
    assert f"window {id}" in home.ok("why", model)
    refused = home.tenure("window", "claim")
    assert refused.code == 1
    assert "--wait takes a place in line" in refused.err
    assert home.ok("window", "release").strip() == id
    home.until(model, "running")
    assert home.ok("window", "ls") == ""
    announced = home.ok("window", "claim", "--begin", "now+1hour").strip()
    assert window(home, announced)["state"] == "scheduled"
    home.ok("window", "release", announced)
    assert home.tenure("window", "claim", "--for", "soon").code == 2
    assert home.tenure("window", "release", "w99").code == 2
    assert home.tenure("window", "grab").code == 2


def test_run_with_a_window_has_the_card_to_itself(home: Home) -> None:
    model = home.submit("--priority", "on-demand", *SLEEP)
    home.until(model, "running")
    said = home.tenure("run", "--window", "--shares", "8", "--gpu-memory", "16Gi", "--", "echo", "alone")
    assert (said.code, said.out) == (0, "alone\n")
    claim = home.json("window", "ls", "--all")[0]
    assert (claim["state"], claim["reason"]) == ("ended", "JobEnded")
    attempts = home.until(model, "running")["attempts"]
    assert attempts[0]["evicted"]["reason"] == "WindowClaimed"


def test_a_job_may_have_the_card_without_residents(home: Home) -> None:
    resident = home.submit("--priority", "registry", *SLEEP)
    home.until(resident, "running")
    words = ("--shares", "8", "--gpu-memory", "16Gi", "--", "echo", "alone")
    said = home.tenure("run", "--window", "--including-resident", *words)
    assert (said.code, said.out) == (0, "alone\n")
    assert home.json("window", "ls", "--all")[0]["including_resident"] is True
    assert home.until(resident, "running")["attempts"][0]["evicted"]["reason"] == "WindowClaimed"
    without = home.tenure("submit", "--including-resident", *words)
    assert (without.code, "give --window, too" in without.err) == (2, True)


def test_the_daemon_is_killed_and_the_line_stands(running: Home) -> None:
    model = running.submit("--priority", "on-demand", *SLEEP)
    running.until(model, "running")
    first = running.spawn("window", "claim", "--stay")
    assert first.stdout is not None
    held = first.stdout.readline().decode().strip()
    second = running.spawn("window", "claim", "--wait", "--for", "1h")
    next_ = eventually(lambda: next((w["id"] for w in running.json("window", "ls") if w["id"] != held), None))
    daemon = running.pid()
    os.kill(daemon, signal.SIGKILL)
    eventually(lambda: not is_alive(daemon))
    assert running.up().code == 0
    assert [(w["id"], w["state"]) for w in running.json("window", "ls")] == [(held, "active"), (next_, "waiting")]
    assert running.json("show", model)["state"] == "queued"
    first.send_signal(signal.SIGINT)
    assert first.wait(20) == 0
    assert second.wait(20) == 0
    assert second.stdout is not None
    assert second.stdout.read().decode().strip() == next_
    assert window(running, held)["reason"] == "Released"
    after = window(running, next_)
    assert (after["state"], after["lease_s"]) == ("active", None)
    for process in (first, second):
        process.communicate()
    assert running.json("show", model)["state"] == "queued"


def test_a_claim_that_waits_is_withdrawn_with_its_command(home: Home) -> None:
    held = home.ok("window", "claim").strip()
    waiting = home.spawn("window", "claim", "--wait")
    id = eventually(lambda: next((w["id"] for w in home.json("window", "ls") if w["state"] == "waiting"), None))
    assert window(home, id)["lease_s"] == 20  # and killed outright, it lapses with that
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(20) == 128 + signal.SIGTERM
    waiting.communicate()
    assert window(home, id)["reason"] == "Released"
    home.ok("window", "release", held)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_before_the_platform_has_answered_is_no_bug(tmp_path: Path, number: signal.Signals) -> None:
    """What was claimed all the same is answered for by nobody, and lapses."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        env = Home(tmp_path).env | {"TENURE_URL": f"http://127.0.0.1:{deaf.getsockname()[1]}"}
        words = [str(TENURE), "window", "claim", "--for", "1h"]
        claim = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        connection, _ = deaf.accept()
        with connection:
            asked = b""
            while b"lease_s" not in asked:
                asked += connection.recv(65536)
            claim.send_signal(number)
            out, err = claim.communicate(timeout=20)
    assert (claim.returncode, out, err) == (128 + number, "", "")
