"""One verb over many jobs, or cards: every one is tried, each refusal is told, and the worst decides the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from .call import Call
from .client import Refused
from .render import code_of, emit, plain
from .submission import jobs_in

__all__ = ["each"]


def each(
    call: Call,
    act: Callable[[str], Any],
    shown: Callable[[dict[str, Any]], str] | None = None,
    *,
    of: Iterable[str] | None = None,
) -> int:
    """`act(id)` answers what became of each of the jobs that were named, or `of` these; that is printed (`shown`, else a line).

    0, or 2 for one that is not there, or 1 for a refusal.
    """
    answers: list[Any] = []
    worst = 0
    for name in call.ids if of is None else of:
        try:
            answers.append(act(name))
        except Refused as error:
            if error.status in (401, 403) or error.status >= 500:
                raise
            print(f"tenure {call.name}: {name}: {plain(error)}", file=sys.stderr)
            worst = max(worst, 2 if error.status in (400, 404, 422) else 1)
    if call.structured:
        emit(answers, call.form)
        return worst
    for answer in [one for told in answers for one in jobs_in(told)]:
        print(answer["id"] if call.form == "name" else (shown or _line)(answer))
    return worst


def _line(job: dict[str, Any]) -> str:
    tasks = job.get("tasks")
    if isinstance(tasks, list):
        return f"{job['id']}: {len(tasks)} tasks, {job.get('state') or 'submitted'}"
    ended = f" ({job['outcome']})" if job.get("outcome") else ""
    reason = f": {plain(job['reason'])}" if job.get("reason") else ""
    return f"{job['id']} {code_of(job)} {job['state']}{ended}{reason}"
