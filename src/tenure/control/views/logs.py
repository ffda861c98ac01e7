"""Where a job's output is.  The door reads it by offset; nothing here opens it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.domain.errors import InvalidRequest, NotFound
from tenure.domain.ids import run_id
from tenure.domain.lifecycle import JobState

from ..lookup import rows_of

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["LogSource", "log"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """A file that may still grow.  `ended`: the attempt will write no more.  `path` None: there is nothing yet."""

    path: Path | None
    ended: bool
    attempt: int


def log(
    platform: Platform, id: str, *, stream: str = "stdout", attempt: int | None = None, task: int | None = None
) -> LogSource:
    """The output of one attempt (default: the latest) of a job; `task` is a gang's rank or an array's index."""
    if stream not in ("stdout", "stderr"):
        raise InvalidRequest(f"{stream!r} is not a stream; use stdout or stderr", field="stream")
    rows, is_array = rows_of(platform.ledger, id)
    if is_array:
        chosen = [row for row in rows if row.array_index == task]
        if not chosen:
            indices = ", ".join(str(row.array_index) for row in rows[:8]) + (", …" if len(rows) > 8 else "")
            raise InvalidRequest(f"job {id} is an array; name a task of it ({indices})", field="task")
        rows, task = chosen, None
    row = rows[0]
    number = attempt if attempt is not None else row.attempts
    if number > row.attempts or number < 0 or (attempt == 0):
        raise NotFound(f"job {row.id} has {row.attempts} attempts; there is no attempt {number}")
    if number == 0:
        return LogSource(path=None, ended=row.state is JobState.ENDED, attempt=0)
    ended = number < row.attempts or row.state in (JobState.ENDED, JobState.QUEUED)
    name = f"{stream}.log" if not task else f"{stream}.{task}.log"
    path = platform.settings.runs_dir / run_id(row.id, number) / name
    return LogSource(path=path if path.exists() else None, ended=ended, attempt=number)
