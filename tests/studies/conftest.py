"""A study as the platform would start it, without one."""

from __future__ import annotations

from pathlib import Path

from tenure.sdk.record import RecordWriter


def as_attempt(home: Path, number: int) -> tuple[Path, dict[str, str]]:
    """What the platform gives attempt `number` of job 7: its own run directory, the job's checkpoints."""
    run = home / "runs" / f"7.{number}"
    writer = RecordWriter(run, by="supervisor")
    writer.opened(run_id=f"7.{number}", job_id="7", attempt=number, retry_of=f"7.{number - 1}" if number > 1 else None)
    writer.close()
    shared = {"TENURE_RUN_DIR": str(run), "TENURE_JOB_ID": "7", "TENURE_ATTEMPT": str(number)}
    return run, {**shared, "TENURE_CHECKPOINT_DIR": str(home / "checkpoints")}
