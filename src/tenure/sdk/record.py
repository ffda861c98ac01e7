"""A run's record: how it is written (`RecordWriter`), read (`read_record`, `Follower`) and asked.

The one module that the house imports of the record format; docs/records.md describes the format, `fold.py` has its rules.
Imported by every supervisor, so it stays light: see `lines.py`.
"""

from __future__ import annotations

import os

from .fold import Record
from .follow import Follower, read_record
from .lines import format_time, now_us, parse_time
from .writer import HEARTBEAT, METRICS, RECORD, RecordWriter, file_signs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .fold import Metric

__all__ = [
    "HEARTBEAT",
    "METRICS",
    "RECORD",
    "Follower",
    "Record",
    "RecordWriter",
    "diff",
    "format_time",
    "now_us",
    "parse_time",
    "quiet",
    "read_record",
    "sign_of_life",
    "stop_outcome",
    "stop_outcome_of",
    "summary",
]


def stop_outcome(record: Record) -> str:
    """How a run ends that was asked to stop: `cancelled` if a cancel is marked, `interrupted` otherwise."""
    return "cancelled" if record.cancel_marked else "interrupted"


def stop_outcome_of(directory: str | os.PathLike[str]) -> str:
    """`stop_outcome` of the record in `directory`, now.  A record that cannot be read counts as unmarked."""
    try:
        return stop_outcome(read_record(directory, metrics=False))
    except OSError:
        return "interrupted"


def sign_of_life(directory: str | os.PathLike[str]) -> tuple[int, ...]:
    """A value that changes whenever the run gives a sign of life (three `stat` calls).

    Who watches compares two of them and measures the time between by its own monotonic clock: a wall clock that jumps
    then neither kills a run nor keeps a dead one.
    """
    return (_size(os.path.join(directory, RECORD)), *file_signs(directory))


def quiet(record: Record, silent_for_s: float) -> bool:
    """Has an open run been silent for longer than it said it would be?  Never true of a run that declared no bound."""
    return record.outcome is None and record.quiet_after_s is not None and silent_for_s > record.quiet_after_s


def summary(record: Record) -> dict[str, object]:
    """The record for `runs show -o json`: plain values, times as RFC 3339 UTC with microseconds."""
    closed = record.closed
    return {
        "run_id": record.run_id, "name": record.name, "job_id": record.job_id, "attempt": record.attempt,
        "retry_of": record.retry_of, "parent": record.parent, "argv": record.argv,
        "state": "closed" if closed else "open", "outcome": record.outcome,
        "opened_at": _stamp(record.opened_at), "closed_at": _stamp(record.ended_at),
        "exit_code": closed["exit_code"] if closed else None, "signal": closed["signal"] if closed else None,
        "reason": closed["reason"] if closed else "", "message": closed["message"] if closed else "",
        "closed_by": closed["by"] if closed else None, "traceback": closed["traceback"] if closed else "",
        "healed": record.healed, "damaged_lines": record.damaged, "lost_lines": record.lost_lines,
        "quiet_after_s": record.quiet_after_s, "last_sign_of_life": _stamp(record.last_sign_of_life),
        "config": record.config, "results": record.results, "metrics": _stamped(record.metrics),
        "phases": [_stamped_one(phase, "begin_at") for phase in record.phases],
        "checkpoints": [_stamped_one(checkpoint, "at") for checkpoint in record.checkpoints],
        "artifacts": [_stamped_one(artifact, "at") for artifact in record.artifacts],
        "resumed_from": _stamped_one(record.resumed_from, "at") if record.resumed_from else None,
        "stop_requests": [_stamped_one(mark, "at") for mark in record.stops],
        "members": {str(rank): said for rank, said in sorted(record.members.items())},
        "code": record.code, "imported": record.imported, "environment": record.environment,
    }  # fmt: skip


def diff(a: Record, b: Record) -> dict[str, object]:
    """Two runs side by side; see `tenure.sdk.comparison.diff`."""
    from .comparison import diff as side_by_side

    return side_by_side(a, b)


def _stamp(at: int | None) -> str | None:
    return None if at is None else format_time(at)


def _stamped_one(item: object, field: str) -> dict[str, object]:
    values: dict[str, object] = dict(item)  # type: ignore[call-overload]
    values[field] = format_time(int(str(values[field])))
    return values


def _stamped(metrics: dict[str, Metric]) -> dict[str, object]:
    return {name: _stamped_one(metric, "at") for name, metric in metrics.items()}


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1
