"""`tenure show`: one job, with its spec and every attempt."""

from __future__ import annotations

from typing import Any

from .call import Call
from .grammar import Verb
from .render import age, code_of, emit, plain, table

VERB = Verb(
    usage="show ID…",
    positionals=(1, None),
    what="job id",
    details="`-o json` prints one object for one id, a list for several.",
)


def run(call: Call) -> int:
    jobs = [call.show(job) for job in call.ids]
    if call.structured:
        emit(jobs[0] if len(jobs) == 1 else jobs, call.form)
    elif call.form == "name":
        print("\n".join(str(job["id"]) for job in jobs))
    else:
        print("\n\n".join("\n".join(lines(job)) for job in jobs))
    return 0


def lines(job: dict[str, Any]) -> list[str]:
    if isinstance(job.get("tasks"), list):
        return _array(job)
    shown = [_title(job), *_facts(job)]
    attempts = job.get("attempts") or []
    if attempts:
        shown += ["", *_attempts(attempts)]
    for text in (job.get("spec") or {}).get("notes") or job.get("notes") or []:
        shown.append(f"note: {plain(text)}")
    return shown


def _title(job: dict[str, Any]) -> str:
    ended = f", {job['outcome']}" if job.get("outcome") else ""
    code = f", exit code {job['exit_code']}" if job.get("exit_code") is not None else ""
    return f"job {job['id']}  {plain(job.get('name') or '')}  {code_of(job)} {job['state']}{ended}{code}"


def _facts(job: dict[str, Any]) -> list[str]:
    spec = job.get("spec") or {}
    words = spec.get("argv") or []
    command = " ".join(_quoted(word) for word in words) if words else "a script" if spec.get("script") else None
    reason = ": ".join(str(part) for part in (job.get("reason"), job.get("message")) if part)
    pairs = [
        ("reason", reason), ("command", command), ("workdir", spec.get("workdir")), ("project", job.get("project")), ("owner", job.get("owner")),
        ("queue", job.get("queue")), ("priority", job.get("priority_class")), ("asks", _asks(job, spec)),
        ("submitted", job.get("submitted_at")), ("admitted", job.get("admitted_at")), ("started", job.get("started_at")), ("ended", job.get("ended_at")),
        ("run", job.get("run_id")),
    ]  # fmt: skip
    return [f"  {name:<10} {plain(value)}" for name, value in pairs if value not in (None, "", [])]


def _asks(job: dict[str, Any], spec: dict[str, Any]) -> str:
    from tenure.domain.amounts import format_bytes, format_quantity

    parts = []
    if spec.get("whole"):
        parts.append("a whole card")
    elif spec.get("shares"):
        parts.append(f"{spec['shares']} share{'s' if spec['shares'] != 1 else ''} of a card")
    if isinstance(spec.get("gpu_memory"), int) and spec["gpu_memory"]:
        parts.append(f"{format_bytes(spec['gpu_memory'])} of its memory")
    if isinstance(spec.get("cpus"), int) and spec["cpus"]:
        parts.append(f"{format_quantity(spec['cpus'], resource='cpu')} cpus")
    if isinstance(spec.get("memory"), int) and spec["memory"]:
        parts.append(f"{format_bytes(spec['memory'])} memory")
    processes = spec.get("processes") or 1
    return ", ".join(parts) + (f", {processes} processes of it" if processes > 1 else "")


def _attempts(attempts: list[Any]) -> list[str]:
    rows = []
    for attempt in attempts:
        evicted = attempt.get("evicted") or {}
        why = ": ".join(str(part) for part in (evicted.get("reason"), evicted.get("message")) if part)
        rows.append([
            attempt["number"], attempt.get("run_id"), attempt.get("state"), attempt.get("outcome"), attempt.get("exit_code"),
            attempt.get("started_at"), age(attempt.get("started_at"), attempt.get("ended_at")), why,
        ])  # fmt: skip
    return table(["TRY", "RUN", "STATE", "OUTCOME", "EXIT", "STARTED", "TIME", "EVICTED"], rows)


def _array(job: dict[str, Any]) -> list[str]:
    counts = job.get("array") or {}
    said = ", ".join(
        f"{name} {value}" for name, value in counts.items() if not isinstance(value, (dict, list)) and value is not None
    )
    for key in ("counts", "states", "outcomes"):
        if isinstance(counts.get(key), dict):
            said += "; " + ", ".join(f"{n} {v}" for n, v in counts[key].items())
    rows = [[task["id"], code_of(task), task.get("state"), task.get("outcome")] for task in job["tasks"]]
    return [
        f"array {job['id']}  {plain(job.get('name') or '')}  {said}",
        *table(["ID", "ST", "STATE", "OUTCOME"], rows),
    ]


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word) if word.isprintable() else "$'" + plain(word).replace("'", "\\'") + "'"
