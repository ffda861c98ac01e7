"""One verb over many jobs: every one is tried, each refusal is told, and the worst decides the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .call import Call
from .client import Refused
from .render import code_of, emit, plain
from .submission import jobs_in

__all__ = ["each"]


def each(call: Call, act: Callable[[str], Any], shown: Callable[[dict[str, Any]], str] | None = None) -> int:
    """`act(id)` answers a job; prints what became of each (`shown`, else a line).  0, or 2 for a job that is not there, or 1 for a refusal."""
    answers: list[Any] = []
    worst = 0
    for job in call.ids:
        try:
            answers.append(act(job))
        except Refused as error:
            if error.status in (401, 403) or error.status >= 500:
                raise
            print(f"tenure {call.name}: {job}: {plain(error)}", file=sys.stderr)
            worst = max(worst, 2 if error.status in (400, 404, 422) else 1)
    if call.structured:
        emit(answers, call.form)
        return worst
    for answer in [job for told in answers for job in jobs_in(told)]:
        if call.form == "name":
            print(answer["id"])
        else:
            print((shown or _line)(answer))
    return worst


def _line(job: dict[str, Any]) -> str:
    tasks = job.get("tasks")
    if isinstance(tasks, list):
        return f"{job['id']}: {len(tasks)} tasks, {job.get('state') or 'submitted'}"
    ended = f" ({job['outcome']})" if job.get("outcome") else ""
    reason = f": {plain(job['reason'])}" if job.get("reason") else ""
    return f"{job['id']} {code_of(job)} {job['state']}{ended}{reason}"
