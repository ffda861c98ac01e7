"""Where the output goes: descriptors that are closed, disks that are full, readers that have left."""

from __future__ import annotations

import shlex
import signal
import subprocess

import pytest

from .conftest import TENURE, Answer, Home, eventually


def shell(home: Home, line: str) -> Answer:
    """A line of shell in which `tenure` is the program."""
    text = line.replace("tenure", shlex.quote(str(TENURE)))
    done = subprocess.run(["sh", "-c", text], env=home.env, capture_output=True, timeout=30, check=False)
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    "words",
    ["ps >&-", "ps 2>&- <&-", "submit -- true >&- 2>&- <&-", "run -- sh -c 'echo out; echo err >&2' >&- 2>&- <&-"],
)
def test_a_closed_descriptor_leads_nowhere_and_fails_nothing(home: Home, words: str):
    answer = shell(home, f"tenure {words}")
    assert answer.code == 0, answer
    assert b"bug" not in answer.raw_err


@pytest.mark.parametrize("words", ["ps -a", "show ID -o json", "logs ID", "logs -f ID", "submit -- true", "--help"])
def test_a_full_disk_takes_the_answer_and_is_named(home: Home, words: str):
    job = home.submit("--", "echo", "hello")
    home.until(job, "ended")
    answer = shell(home, f"tenure {words.replace('ID', job)} >/dev/full")
    assert (answer.code, answer.out) == (74, "")
    assert "could not be written: No space left on device" in answer.err
    assert len(answer.err.splitlines()) == 1


def test_a_job_whose_output_cannot_be_written_ends_as_a_command_would(home: Home):
    answer = shell(home, "tenure run -- sh -c 'echo x; exec sleep 60' >/dev/full")
    assert answer.code == 74, answer
    assert "No space left on device" in answer.err
    newest = home.json("ps", "-a", "-n", "1")[0]
    assert (newest["state"], newest["outcome"]) == ("ended", "cancelled")


@pytest.mark.parametrize("view", [("top",), ("ps", "--watch")])
def test_a_view_that_nobody_sees_any_more_ends(home: Home, view: tuple[str, ...]):
    process = home.spawn(*view)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()  # as `head -1` does; and then nothing changes that a write would tell
    process.stdout = None
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (141, b"")


def test_what_is_asked_to_end_says_by_which_signal(home: Home):
    process = home.spawn("run", "--", "sh", "-c", "echo up; exec sleep 600")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert eventually(lambda: home.json("ps", "-a", "-n", "1")[0]["outcome"]) == "cancelled"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gang", "0"], "--gang: "),
        (["--time", "0s"], "--time: "),
        (["--begin", "now+99999999hours"], "--begin: "),
        (["--request", "foo=-1"], "--request 'foo': "),
        (
            ["--request", "nvidia.com/gpu=1"],
            "--request 'nvidia.com/gpu': has a field of its own: write shares (--shares)",
        ),
        (["--output", "x" * 5000], "--output: "),
        (["--project", "x" * 5000], "--project: "),
    ],
)
def test_a_refusal_names_the_flag(home: Home, words: list[str], said: str):
    answer = home.tenure("submit", *words, "--", "true")
    assert answer.code == 2, answer
    assert said in answer.err
