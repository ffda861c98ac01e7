"""Names of things.  All are plain strings at run time; the types keep them apart while reading and checking."""

from __future__ import annotations

from typing import NewType

__all__ = ["CardId", "Instant", "JobId", "RunId", "WorkloadKey", "run_id", "split_run_id"]

JobId = NewType("JobId", str)
"""`37`, or `37_4` for task 4 of array 37."""

RunId = NewType("RunId", str)
"""`37.1`: the record of attempt 1 of job 37.  A run with no platform has a name of its own (see `tenure.sdk`)."""

WorkloadKey = NewType("WorkloadKey", str)
"""How the engine names a workload: `namespace/name` for Kueue's own objects, the job id for tenure's jobs."""

CardId = NewType("CardId", str)
"""The card's UUID as NVML prints it (`GPU-…`), or `declared-0` for a card that was declared, not measured."""

Instant = NewType("Instant", int)
"""Microseconds since the Unix epoch, UTC.  Integers compare exactly and survive JSON and both databases."""


def run_id(job: JobId, attempt: int) -> RunId:
    """The run's name follows from the attempt's, so starting twice cannot make two."""
    return RunId(f"{job}.{attempt}")


def split_run_id(run: RunId) -> tuple[JobId, int]:
    """The inverse of `run_id`.  Raises ValueError for a run that no job owns."""
    job, _, number = run.rpartition(".")
    if not job or not number.isdigit():
        raise ValueError(f"{run!r} is not the run of a job")
    return JobId(job), int(number)
