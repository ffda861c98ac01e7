"""`tenure run`: as if the command ran here."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from .conftest import Home, eventually, is_alive


def test_bytes_come_through_untouched_on_their_own_streams(home: Home) -> None:
    program = r"import sys; sys.stdout.buffer.write(bytes(range(256))); sys.stdout.flush(); sys.stderr.buffer.write(b'\xff\x1b[31m\r')"
    answer = home.tenure("run", "--quiet", "--", sys.executable, "-c", program)
    assert answer.code == 0
    assert answer.raw == bytes(range(256))
    assert answer.raw_err == b"\xff\x1b[31m\r"


@pytest.mark.parametrize(
    ("command", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
)
def test_it_exits_as_the_job_did(home: Home, command: str, code: int) -> None:
    assert home.tenure("run", "--no-requeue", "--", "sh", "-c", command).code == code


def test_a_time_limit_exits_with_124(home: Home) -> None:
    answer = home.tenure("run", "--time", "1s", "--grace", "1s", "--", "sleep", "60")
    assert answer.code == 124, answer


def test_words_reach_the_command_as_they_were(home: Home) -> None:
    words = ['训练 "x" $(rm) \n', "", "--name", "'", "\\", "*"]
    answer = home.tenure("run", "--", sys.executable, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *words)
    assert __import__("json").loads(answer.out) == words


def test_a_name_may_be_anything(home: Home) -> None:
    name = '训练 "x" $(rm) \n'
    job = home.submit("--name", name, "--", "true")
    home.tenure("wait", job)
    assert home.json("show", job)["name"] == name
    listed = [line for line in home.ok("ps", "-a").splitlines() if line.startswith(f"{job} ")]
    assert len(listed) == 1
    assert '训练 "x" $(rm) \\n' in listed[0]


def test_it_runs_here_with_this_environment(home: Home, tmp_path: Path) -> None:
    answer = home.tenure(
        "run", "-e", "B=2", "--", "sh", "-c", 'pwd; echo "$A $B $TENURE_JOB_ID"', env={"A": "a  a"}, cwd=tmp_path
    )
    first, second = answer.out.splitlines()
    assert Path(first) == tmp_path
    assert second.startswith("a  a 2 ")
    assert second.split()[-1].isdecimal()


def test_stdin_is_not_handed_on_and_the_help_says_so(home: Home) -> None:
    answer = home.tenure("run", "--", "cat", stdin=b"words of the caller's\n")
    assert (answer.code, answer.out) == (0, "")
    assert "Stdin is not handed on" in home.ok("run", "--help")


def test_output_comes_while_it_runs(home: Home, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    process = home.spawn("run", "--", "sh", "-c", f"echo one; cat '{gate}'; echo two")
    assert process.stdout is not None
    assert process.stdout.readline() == b"one\n"  # it cannot end before the gate is opened below
    gate.write_text("open\n")
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, b"open\ntwo\n"), err


def test_five_megabytes_arrive_whole(home: Home) -> None:
    program = "import sys; [sys.stdout.write(f'{i:099d}\\n') for i in range(50000)]"
    answer = home.tenure("run", "--", sys.executable, "-c", program)
    assert len(answer.raw) == 5_000_000
    assert answer.raw.endswith(b"49999\n")


def test_ctrl_c_cancels_the_job_and_exits_with_130(home: Home) -> None:
    process = home.spawn("run", "--", "sh", "-c", "echo $$; exec sleep 600")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert b"cancelling job" in err
    assert not is_alive(pid)
    newest = home.json("ps", "-a", "-n", "1")[0]
    assert (newest["state"], newest["outcome"]) == ("ended", "cancelled")


def test_a_second_ctrl_c_leaves_and_says_how_to_go_on(home: Home) -> None:
    process = home.spawn(
        "run", "--grace", "30s", "--", "sh", "-c", "trap '' TERM; echo ready; sleep 600 & wait; wait; sleep 600"
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert b"cancelling job" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"tenure logs -f" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_that_come_at_once_cancel_the_job(home: Home, number: signal.Signals) -> None:
    """`timeout` sends its signal to the command and to the command's group; nobody is left to end the job."""
    process = home.spawn("run", "--", "sh", "-c", "echo $$; exec sleep 600")
    assert process.stdout is not None
    process.stdout.readline()
    for _ in range(3):
        process.send_signal(number)
        time.sleep(0.003)  # or the kernel makes one of them
    _, err = process.communicate(timeout=20)
    assert process.returncode in (130, 143), err
    job = home.json("ps", "-a", "-n", "1")[0]["id"]
    assert home.until(job, "ended")["outcome"] == "cancelled"


def test_a_closed_pipe_ends_it_as_it_would_end_the_command(home: Home) -> None:
    process = home.spawn("run", "--", "sh", "-c", "while :; do echo y; done")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    process.communicate(timeout=20)
    assert process.returncode == 141
    job = home.json("ps", "-a", "-n", "1")[0]["id"]
    assert home.until(job, "ended")["outcome"] == "cancelled"


def test_detach_prints_the_id_and_returns(home: Home) -> None:
    answer = home.tenure("run", "-d", "--", "sleep", "600")
    assert answer.code == 0
    assert answer.out.strip().isdecimal()
    assert home.tenure("cancel", answer.out.strip()).code == 0


def test_why_it_waits_is_told_on_stderr(home: Home) -> None:
    filler = home.submit("--shares", "8", "--gpu-memory", "1Gi", "--", "sleep", "600")
    home.until(filler, "running")
    process = home.spawn("run", "--shares", "1", "--gpu-memory", "1Gi", "--", "echo", "done")
    assert process.stderr is not None
    line = process.stderr.readline().decode()
    assert "waits: " in line
    home.ok("cancel", filler)
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, b"done\n")


def test_every_rank_of_a_gang_is_heard_by_whole_lines(home: Home) -> None:
    program = "import os, sys\nfor i in range(500): sys.stdout.write(os.environ['RANK'] * 50 + '\\n'); sys.stdout.flush()\nsys.stdout.write('end')"
    answer = home.tenure("run", "--gang", "2", "--", sys.executable, "-c", program)
    assert answer.code == 0, answer
    assert sorted(set(answer.out.replace("end", "").split())) == ["0" * 50, "1" * 50]
    assert answer.out.count("\n") == 1000
    assert answer.out.count("end") == 2


def test_a_preempted_job_is_followed_into_its_next_attempt(home: Home) -> None:
    script = 'echo attempt $TENURE_ATTEMPT; test "$TENURE_ATTEMPT" -gt 1 || sleep 600'
    process = home.spawn("run", "--priority", "batch", "--shares", "8", "--gpu-memory", "1Gi", "--", "sh", "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == b"attempt 1\n"
    taker = home.submit(
        "--name", "taker", "--priority", "training", "--shares", "8", "--gpu-memory", "1Gi", "--", "true"
    )
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, b"attempt 2\n"), err
    said = err.decode()
    assert "preempted: " in said
    assert "resumed as attempt 2" in said
    assert home.json("show", taker)["outcome"] == "completed"


def test_a_killed_platform_is_waited_for_and_nothing_is_lost_or_told_twice(running: Home, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    program = f"import sys\nfor i in range(2000): print(i, flush=True)\nopen({str(gate)!r}).read()\nfor i in range(2000, 4000): print(i)\nsys.exit(3)"
    process = running.spawn("run", "--", sys.executable, "-c", program)
    assert process.stdout is not None
    got = [process.stdout.readline() for _ in range(10)]
    daemon = running.pid()
    os.kill(daemon, signal.SIGKILL)
    eventually(lambda: not is_alive(daemon))
    assert running.up().code == 0
    gate.write_text("")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 3, err
    assert [int(line) for line in [*got, *out.splitlines()]] == list(range(4000))
