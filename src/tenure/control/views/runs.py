"""Runs: what was read of the records.  One run, and a comparison, are read from the run directories themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenure.domain.errors import InvalidRequest, NotFound
from tenure.domain.lifecycle import Outcome
from tenure.ledger import RunFilter, RunRow
from tenure.sdk import record as records

from ..clock import wire

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["diff", "run", "runs"]


def runs(
    platform: Platform,
    *,
    job: str | None = None,
    project: str | None = None,
    name: str | None = None,
    outcome: str | None = None,
    limit: int = 200,
    cursor: str | None = None,
) -> dict[str, Any]:
    """Newest first, a page at a time.  Asking for them has those looked for that no job owns."""
    platform.rounds.look_soon()
    try:
        wanted = Outcome(outcome) if outcome else None
    except ValueError:
        words = ", ".join(Outcome)
        raise InvalidRequest(f"{outcome!r} is not an outcome; there are {words}", field="outcome") from None
    which = RunFilter(job_id=job, project=project, name=name, outcome=wanted)
    page = platform.ledger.runs(which, limit=limit, cursor=cursor)
    return {"items": [_row(row) for row in page.items], "next": page.next}


def run(platform: Platform, run_id: str) -> dict[str, Any]:
    """The record as it is now.  Raises NotFound."""
    row, directory = _find(platform, run_id)
    return {
        "run_id": run_id,
        "job_id": row.job_id if row else None,
        "project": row.project if row else "default",
        "run_dir": str(directory),
        **records.summary(records.read_record(directory)),
    }


def diff(platform: Platform, a: str, b: str) -> dict[str, Any]:
    """Config, code, environment and results of two runs, side by side."""
    first, second = (records.read_record(_find(platform, name)[1]) for name in (a, b))
    return {"a": a, "b": b, **records.diff(first, second)}


def _find(platform: Platform, name: str) -> tuple[RunRow | None, Path]:
    row = platform.ledger.find_run(name)
    if row is not None:
        return row, Path(row.run_dir)
    directory = platform.settings.runs_dir / name
    if "/" in name or name in ("", ".", "..") or "\0" in name or not directory.is_dir():
        raise NotFound(f"there is no run {name}; `tenure runs ls` lists the runs there are")
    return None, directory


def _row(row: RunRow) -> dict[str, Any]:
    summary = dict(row.summary)
    return {
        "run_id": row.run_id,
        "name": row.name,
        "job_id": row.job_id,
        "project": row.project,
        "outcome": str(row.outcome) if row.outcome else None,
        "opened_at": wire(row.opened_at),
        "closed_at": wire(row.closed_at),
        "retry_of": row.retry_of,
        "results": summary.get("results", {}),
        "config": summary.get("config", {}),
        "healed": summary.get("healed", False),
    }
