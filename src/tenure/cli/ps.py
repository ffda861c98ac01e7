"""`tenure ps`: the jobs that are live, or all of them, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .call import Call
from .grammar import Option, Verb
from .render import age, code_of, emit, state_colour, table

VERB = Verb(
    usage="ps [-a] [flags]",
    options=(
        Option(names=("--all", "-a"), help="the ended ones too"),
        Option(names=("--state",), value="STATE", help="queued, admitted, running, evicting, cancelling or ended"),
        Option(names=("--project",), value="NAME", help="of one project"),
        Option(names=("--name",), value="NAME", help="of one name"),
        Option(names=("--queue", "-q"), value="NAME", help="of one queue"),
        Option(names=("--array",), value="ID", help="the tasks of one array"),
        Option(names=("--limit", "-n"), value="N", help="the newest N"),
        Option(names=("--watch", "-w"), help="stay, and draw again at every event"),
    ),
    details="""
    ST is squeue's code: PD waits, CF is admitted and starting, R runs, CG is being stopped; then CD completed, F failed,
    CA cancelled, PR interrupted, TO timed out, OOM out of memory, NF the machine or the supervisor went away.
    """,
    examples=(("tenure ps -a -o json", "every job, for a program"), ("tenure ps --watch", "live")),
)


def run(call: Call) -> int:
    if call.parsed.on("watch"):
        from .live import redraw

        return redraw(call, lambda: lines(call, jobs_of(call)))
    jobs = jobs_of(call)
    if call.structured:
        emit(jobs, call.form)
    elif call.form == "name":
        for job in jobs:
            print(job["id"])
    else:
        print("\n".join(lines(call, jobs)))
    return 0


def jobs_of(call: Call) -> list[Any]:
    """Every job that the flags ask for, page by page."""
    parsed = call.parsed
    wanted = parsed.count("limit")
    array = parsed.text("array")
    state = parsed.text("state")
    query: dict[str, object] = {
        "all": parsed.on("all") or state == "ended" or array is not None or None,
        "state": state, "project": parsed.text("project"), "name": parsed.text("name"), "queue": parsed.text("queue"),
        "array": call.job_id(array) if array else None,
    }  # fmt: skip
    jobs: list[Any] = []
    cursor: str | None = None
    while True:
        page = call.client.get("/jobs", **query, limit=min(wanted or 1000, 1000), cursor=cursor)
        jobs.extend(page["items"])
        cursor = page.get("next")
        if not cursor or (wanted is not None and len(jobs) >= wanted):
            return jobs if wanted is None else jobs[:wanted]


def lines(call: Call, jobs: list[Any]) -> list[str]:
    wide = call.form == "wide"
    head = ["ID", "NAME", "ST", "QUEUE", "PRIORITY", "AGE", "TIME", "TRY"]
    head += ["PROJECT", "OWNER", "SHARES", "RUN", "EXIT"] if wide else []
    rows = [row(job, wide=wide) for job in jobs]
    return table([*head, "REASON"], rows, colour=lambda i, text: state_colour(text) if i == 2 else None)


def row(job: dict[str, Any], *, wide: bool) -> list[object]:
    cells: list[object] = [
        job["id"], job.get("name"), code_of(job), job.get("queue"), job.get("priority_class"),
        age(job.get("submitted_at")), _time(job), job.get("attempts"),
    ]  # fmt: skip
    if wide:
        cells += [job.get("project"), job.get("owner"), job.get("shares"), job.get("run_id"), job.get("exit_code")]
    return [*cells, _reason(job)]


def _time(job: Mapping[str, Any]) -> str:
    """Since it first started; a job that waits again is not running."""
    return "-" if job.get("state") == "queued" else age(job.get("started_at"), job.get("ended_at"))


def _reason(job: dict[str, Any]) -> str:
    if job.get("state") == "running":
        return ""
    reason, message = job.get("reason") or "", job.get("message") or ""
    if job.get("state") == "ended" and job.get("outcome") == "failed" and not reason:
        return f"exit code {job.get('exit_code')}"
    return f"{reason}: {message}" if reason and message and job.get("state") != "ended" else str(reason or message)
