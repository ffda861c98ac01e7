"""The values of the house as the supervisor's plain dictionaries, and back."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from tenure.domain.attempt import AttemptSpec, AttemptState, Observation, Stop, Survivor
from tenure.domain.ids import Instant, RunId
from tenure.domain.job import JobSpec
from tenure.domain.lifecycle import Outcome

from .layout import SPEC

__all__ = ["observation", "spec", "stop", "write_spec"]

_encode = json.JSONEncoder(separators=(",", ":")).encode


def _job(job: JobSpec) -> dict[str, Any]:
    signal = job.stop_signal
    return {
        "name": job.name, "argv": list(job.argv), "script": job.script, "script_args": list(job.script_args), "workdir": job.workdir,
        "owner": job.owner, "project": job.project, "queue": job.queue, "cpus": job.cpus, "memory": job.memory, "gang": job.gang,
        "policy": str(job.policy), "completions": job.completions, "indexed": job.indexed, "backoff_limit": job.backoff_limit,
        "tasks": job.tasks, "time_limit_s": job.time_limit_s, "grace_s": job.grace_s, "sbatch": job.sbatch,
        "stop_signal": {"signal": signal.signal, "before_s": signal.before_s, "batch_only": signal.batch_only} if signal else None,
        "output": job.logs.output, "error": job.logs.error, "append": job.logs.append,
        "array": _array(job.array.indices) if job.array else None, "fingerprint": dict(job.fingerprint),
    }  # fmt: skip


@lru_cache(maxsize=16)
def _array(indices: tuple[int, ...]) -> dict[str, int]:
    """What a task may ask about its array.  Not the indices: each of ten thousand tasks would carry all ten thousand."""
    steps = {b - a for a, b in pairwise(sorted(indices))}
    step = steps.pop() if len(steps) == 1 else 1
    return {"count": len(indices), "min": min(indices), "max": max(indices), "step": step}


def spec(attempt: AttemptSpec) -> dict[str, Any]:
    """What `spec.json` holds."""
    return {
        "v": 1, "run_id": attempt.run_id, "job_id": attempt.job_id, "number": attempt.number, "run_dir": attempt.run_dir,
        "retry_of": attempt.retry_of, "checkpoints_of": attempt.checkpoints_of, "job": _job(attempt.job), "env": dict(attempt.env),
        "processes": [
            {"rank": process.rank, "cards": list(process.cards)}
            for process in sorted(attempt.processes, key=lambda process: process.rank)
        ],
    }  # fmt: skip


def stop(request: Stop) -> dict[str, Any]:
    """What a stop is in `requests.jsonl`."""
    return {
        "stop": str(request.kind), "reason": request.reason, "message": request.message, "by": request.by,
        "grace_s": request.grace_s, "signal": request.signal,
    }  # fmt: skip


def observation(run: RunId, known: Mapping[str, Any], *, boot: str | None = None) -> Observation:
    """What is known, as the house says it."""
    instant = {
        name: Instant(known[name]) if known.get(name) is not None else None for name in ("started_at", "ended_at")
    }
    state = AttemptState(known["state"])
    details: dict[str, object] = {name: value for name, value in known.get("details", {}).items() if value is not None}
    if boot is not None:
        details["boot_id"] = boot
    return Observation(
        run_id=run,
        state=state,
        at=Instant(known["at"]),
        started_at=instant["started_at"],
        ended_at=instant["ended_at"],
        exit_code=known.get("exit_code"),
        signal=known.get("signal"),
        outcome=Outcome(known["outcome"]) if known.get("outcome") else None,
        reason=known.get("reason") or "",
        message=known.get("message") or "",
        failed_rank=known.get("failed_rank"),
        processes=known.get("processes"),
        survivors=tuple(Survivor(**survivor) for survivor in known.get("survivors", ())),
        details=details,
    )


def write_spec(run_dir: Path, attempt: AttemptSpec) -> None:
    """Whole or not at all, readable by its owner alone from the first instant.  An earlier one is left as it is.

    Raises OSError.
    """
    target = os.path.join(run_dir, SPEC)
    if os.path.exists(target):
        return
    draft = f"{target}.{os.getpid()}.{threading.get_ident()}"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(_encode(spec(attempt)).encode("ascii"))
        os.rename(draft, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
