"""`tenure wait`: return when jobs have ended; 0 if all completed, 1 if one did not, 124 if it took too long."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

from .call import Call
from .client import job_path
from .follow import patiently
from .grammar import Option, Verb
from .progress import Progress
from .render import emit, note
from .times import seconds_of

VERB = Verb(
    usage="wait ID… [--timeout DURATION]",
    options=(
        Option(
            names=("--timeout", "-t"),
            value="DURATION",
            help="give up after this long, with 124; a bare number is seconds",
        ),
    ),
    positionals=(1, None),
    what="job id",
    details="Of an array's id, all its tasks count.",
    examples=(("tenure wait $(tenure submit -- make) && echo done", "submit, wait, go on"),),
)

POLL_S = 20.0


def run(call: Call) -> int:
    text = call.parsed.text("timeout")
    deadline = time.monotonic() + seconds_of(text, flag="--timeout") if text else None
    ended: list[Any] = []
    with Progress("waiting") as progress:
        for job in call.ids:
            call.show(job)  # a job that is not there is a mistake, and is said at once
        for job in call.ids:
            last = _wait(call, job, deadline, progress)
            if last is None:
                note(f"job {job} has not ended yet")
                if call.structured:
                    emit(ended, call.form)
                return 124
            ended.append(last)
    if call.structured:
        emit(ended, call.form)
    bad = [job for job in ended if not completed(job)]
    for job in bad:
        note(
            f"job {job['id']} ended {job.get('outcome') or 'badly'}"
            + (f": {job['reason']}" if job.get("reason") else "")
        )
    return 1 if bad else 0


def _wait(call: Call, job: str, deadline: float | None, progress: Progress) -> Any:
    """The job when it has ended; None at the deadline."""
    while True:
        left = POLL_S if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return None
        answer = patiently(partial(_ask, call, job, min(left, POLL_S if not sys.stderr.isatty() else 1.0)))
        if answer is not None:
            return answer
        progress.tell(f"job {job}")


def _ask(call: Call, job: str, seconds: float) -> Any:
    return call.client.call("GET", job_path(job, ":wait"), query={"timeout": seconds}, timeout_s=seconds + 30)


def completed(job: dict[str, Any]) -> bool:
    """An array completed if every task did."""
    tasks = job.get("tasks")
    if isinstance(tasks, list) and tasks and isinstance(tasks[0], dict):
        return all(task.get("outcome") == "completed" for task in tasks)
    return job.get("outcome") == "completed"
