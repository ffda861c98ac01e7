"""`tenure run`: as if the command ran here. Streams, and exits with the job's own code.

Ctrl-C cancels the job; a second one leaves it to its end and says how to go on.  A platform that dies meanwhile is waited for.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from functools import partial
from queue import SimpleQueue
from types import FrameType
from typing import Any

from . import submission
from .call import Call
from .client import Refused, Unreachable, job_path
from .follow import News, Pump, events, patiently
from .grammar import Option, Verb
from .render import note

VERB = Verb(
    usage="run [flags] -- CMD",
    options=(
        *submission.FLAGS,
        Option(names=("--detach", "-d"), help="queue it, print the id and return, as submit does"),
        Option(names=("--quiet", "-Q"), help="no chatter on stderr, only what the job writes there"),
    ),
    positionals=(0, None),
    what="command",
    command=True,
    stops=True,
    details="""
    Everything after `--` is the command, untouched.  Its stdout and stderr come out of yours; what the platform has to
    say goes to stderr.  Ctrl-C cancels the job, a second one leaves it to its end.  Stdin is not handed on, since the job
    outlives this terminal: name a file (`-- sh -c 'exec CMD < /data/in'`).
    """,
    examples=(
        ("tenure run -- python -c 'print(6 * 7)'", "a job that needs no card"),
        (
            "tenure run --shares 1 --gpu-memory 4Gi --time 1h -- python train.py",
            "one share of the card, an hour at most",
        ),
    ),
)

_CHATTER = (
    "JobRequeued",
    "JobPending",
    "JobPreempted",
    "JobEvicted",
    "JobShrunk",
    "JobLaunchFailed",
    "JobHeld",
    "JobSurvivors",
    "CodeChanged",
    "JobNoted",
)


HAND_OVER_S = 2.0  # a platform that is away is not waited for


class _Left(Exception):
    """The person has left the job running."""


def run(call: Call) -> int:
    body, notes = submission.body_of(call, file_allowed=False)
    for text in notes:
        note(text)
    from .submit import dry_run, report

    if call.parsed.on("dry-run"):
        return dry_run(call, body)
    missing = submission.missing_program(call, body)
    if missing is not None:
        print(f"tenure run: {missing}", file=sys.stderr)
        return 126 if missing.endswith("not executable") else 127
    interrupts = _Interrupts(call)
    answer = submission.post(call, body)
    if call.parsed.on("detach"):
        report(call, answer)
        return 0
    for text in answer.get("notes") or []:
        note(str(text)) if not call.parsed.on("quiet") else None
    return stream(call, answer, interrupts)


def stream(call: Call, answer: Any, interrupts: _Interrupts | None = None) -> int:
    """Stay with a submitted job (or each task of an array, one after the other) to the end; its exit code."""
    interrupts = interrupts or _Interrupts(call)
    bases = [str(job["id"]) for job in submission.jobs_in(answer)]
    tasks = [task for job in submission.jobs_in(answer) for task in submission.ids_in(job)]
    shown = " ".join(bases)
    try:
        interrupts.arm(bases)
        codes = [_Stay(call, task, interrupts).to_the_end() for task in tasks]
    except _Left:
        interrupts.hand_over()
        note(f"left job {shown} to itself; go on with `tenure logs -f {bases[0]}`, end it with `tenure cancel {shown}`")
        return 128 + interrupts.first
    return next((code for code in codes if code), 0)


class _Interrupts:
    """Ctrl-C and SIGTERM while a job is ours: the first cancels, the second leaves.

    The first counts, however soon the second comes: `timeout` sends its own twice at once.  So the handler only writes
    the wish down, in one step that another signal cannot cut, and a thread that is there already carries it out.
    """

    def __init__(self, call: Call) -> None:
        self._client = call.client.twin()
        self._jobs: list[str] = []
        self._wishes: SimpleQueue[str] = SimpleQueue()
        self._cancelling: threading.Thread | None = None
        self.count = 0
        self.first: int = signal.SIGINT
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._heard)

    def arm(self, jobs: list[str]) -> None:
        """Before this there is no id to cancel: an earlier signal takes effect now."""
        self._cancelling = threading.Thread(target=self._cancel, args=(jobs,), daemon=True)
        self._cancelling.start()
        self._jobs = jobs  # last: from now on a second signal leaves

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1:
            self.first = number
            self._wishes.put("Ctrl-C in tenure run" if number == signal.SIGINT else "tenure run was asked to end")
            if self._jobs:
                note(f"cancelling job {' '.join(self._jobs)} (Ctrl-C again leaves it to itself)")
        elif self._jobs:
            raise _Left

    def cancel(self, reason: str) -> None:
        self._wishes.put(reason)

    def hand_over(self) -> None:
        """Leave, but not before the platform has heard the wish."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if self._cancelling is not None:
            self._cancelling.join(HAND_OVER_S)

    def _cancel(self, jobs: list[str]) -> None:
        """In a thread: a signal handler must not wait, and the platform may be away."""
        reason = self._wishes.get()
        for job in jobs:
            with contextlib.suppress(Refused):  # it had ended already: the end will be heard
                patiently(partial(self._client.post, job_path(job, ":cancel"), {"reason": reason}))


class _Stay:
    """One job, followed from its first event to its last byte."""

    def __init__(self, call: Call, job: str, interrupts: _Interrupts) -> None:
        self._client = call.client
        self._job = job
        self._quiet = call.parsed.on("quiet")
        self._interrupts = interrupts
        self._attempt = 0  # the newest whose output is being copied
        self._pumps: list[Pump] = []
        self._launch_code: int | None = None
        self._unwritten: OSError | None = None
        self._processes = 1  # of a gang every rank is heard, line by line

    def to_the_end(self) -> int:
        self._processes = int(patiently(lambda: self._client.get(job_path(self._job))).get("processes") or 1)
        for event in events(self._client.twin(), job=self._job, known=self._is_over):
            self._hear(event)
            if event.kind == "JobEnded":
                break
        final = patiently(lambda: self._client.get(job_path(self._job)))
        for attempt in final.get("attempts") or []:
            if attempt.get("started_at") is not None:
                self._copy(int(attempt["number"]))
        self._join()
        return self._code(final)

    def _is_over(self) -> bool:
        try:
            return bool(self._client.get(job_path(self._job))["state"] == "ended")
        except Unreachable:
            return False

    def _hear(self, event: News) -> None:
        if event.kind == "JobStarted":
            number = _attempt_of(event)
            if number > 1:
                self._say(f"resumed as attempt {number}")
            self._copy(number)
        elif event.kind == "JobLaunchFailed":
            self._launch_failed(event)
        elif event.kind in _CHATTER and event.message:
            lead = {"JobPending": "waits: ", "JobPreempted": "preempted: "}.get(event.kind, "")
            self._say(f"{lead}{event.message}")

    def _say(self, text: str) -> None:
        if not self._quiet:
            note(f"job {self._job} {text}")

    def _launch_failed(self, event: News) -> None:
        """What cannot be started will not be tried again for somebody who is looking on."""
        code = event.data.get("exit_code")
        if self._launch_code is None and code in (126, 127):
            self._launch_code = int(code)
            note(event.message or "the command could not be started")
            self._interrupts.cancel("the command could not be started")

    def _copy(self, number: int) -> None:
        if number <= self._attempt:
            return
        self._join()  # the attempt before has ended: its last bytes come before the next one's first
        self._attempt = number
        self._pumps = [
            Pump(
                self._client,
                self._job,
                name,
                attempt=number,
                task=rank,
                whole_lines=self._processes > 1,
                gone=self._nobody_reads,
            )
            for rank in range(self._processes)
            for name in ("stdout", "stderr")
        ]
        for pump in self._pumps:
            pump.start()

    def _join(self) -> None:
        for pump in self._pumps:
            pump.join()

    def _nobody_reads(self, error: OSError) -> None:
        """A closed pipe, or a full disk, ends a command that writes to it; so it does here."""
        self._unwritten = error
        why = (
            "nobody reads its output any more"
            if isinstance(error, BrokenPipeError)
            else f"its output: {error.strerror}"
        )
        self._interrupts.cancel(why)

    def _code(self, final: dict[str, Any]) -> int:
        if isinstance(self._unwritten, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 128 + signal.SIGPIPE
        if self._unwritten is not None:
            raise self._unwritten  # `main` knows what to say
        if self._launch_code is not None:
            return self._launch_code
        self._say_how_it_ended(final)
        if self._interrupts.count and final.get("outcome") == "cancelled":
            return 128 + self._interrupts.first
        return exit_code(final)

    def _say_how_it_ended(self, final: dict[str, Any]) -> None:
        outcome, message = final.get("outcome"), final.get("message")
        if (
            outcome not in ("completed", "failed")
            or (final.get("exit_code") is None and outcome == "failed")
            or final.get("reason") == "TimeLimit"
        ):
            self._say(f"{outcome}: {message or final.get('reason') or 'no reason was given'}")


def exit_code(job: dict[str, Any]) -> int:
    """What a shell would say of it: its own code, 124 for the time limit, 128+N for a signal."""
    code = job.get("exit_code")
    if job.get("outcome") == "completed":
        return 0
    if job.get("reason") == "TimeLimit":
        return 124
    if isinstance(code, int) and code:
        return code
    return 128 + signal.SIGTERM if job.get("outcome") == "cancelled" else 1


def _attempt_of(event: News) -> int:
    """The attempt that an event speaks of: in its data, or in the run's name (`37.2`)."""
    number = event.data.get("attempt") or event.data.get("number")
    if isinstance(number, int):
        return number
    tail = str(event.whole.get("run_id") or "").rpartition(".")[2]
    return int(tail) if tail.isdecimal() else 1
