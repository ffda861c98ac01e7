"""RecordWriter: the pen.  It appends to a run directory's `record.jsonl` and `metrics.jsonl`, and decides nothing.

Every writer of a record uses it: the run itself, its supervisor, and whoever marks a stop or reaps.  What the lines mean
together is `record.py`'s to say.
"""

from __future__ import annotations

import os

from .lines import Appender, format_time, now_us

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["HEARTBEAT", "METRICS", "RECORD", "RecordWriter"]

RECORD = "record.jsonl"
METRICS = "metrics.jsonl"
HEARTBEAT = "heartbeat"

_VERSION = 1
_LONGEST_TEXT = 16_384  # characters of a message: a traceback has its end kept, which is where it says what went wrong
_OUTCOMES = ("completed", "failed", "cancelled", "interrupted")
_STOPS = ("cancel", "preempt", "evict", "time-limit", "shutdown")
_OWN_FIELDS = ("v", "at", "kind", "seq", "step")


class RecordWriter:
    """Appends to the record in `directory`, which is made if it is missing.

    `by` says whose words these are: `run`, `supervisor`, `reaper` or the name of whoever marks a stop.  Each method writes
    one line with one write(2), flushed whole, and raises OSError (full disk, read-only home) if it could not; nothing
    half-written is ever taken for a line.  Safe to share between threads and forked processes.
    """

    __slots__ = ("_metrics", "_record", "by", "directory")

    def __init__(self, directory: str | os.PathLike[str], *, by: str = "run") -> None:
        self.directory = os.path.abspath(os.fspath(directory))
        self.by = by
        record = os.path.join(self.directory, RECORD)
        try:
            self._record = Appender(record)
        except FileNotFoundError:
            os.makedirs(self.directory, exist_ok=True)
            self._record = Appender(record)
        self._metrics: Appender | None = None

    def opened(
        self,
        *,
        run_id: str,
        job_id: str | None = None,
        attempt: int | None = None,
        retry_of: str | None = None,
        argv: Sequence[str] = (),
        config: Mapping[str, object] | None = None,
        code: Mapping[str, object] | None = None,
        environment: Mapping[str, object] | None = None,
        quiet_after_s: float | None = None,
        **more: object,
    ) -> None:
        """The run has begun.  The supervisor and the run may both say so; the later one fills in what it knows.

        `quiet_after_s` is the silence, in seconds, after which the run may be taken for dead; None: never by silence.
        `more` may hold `name`, `parent`, `pid`, `rank` and `world_size`.
        """
        self.line(
            "opened", run_id=run_id, job_id=job_id, attempt=attempt, retry_of=retry_of, argv=list(argv), config=config,
            code=code, environment=environment, quiet_after_s=quiet_after_s, writer=self.by, **more,
        )  # fmt: skip

    def config(self, values: Mapping[str, object]) -> None:
        """The parameters.  Later values lie over earlier ones, key by key."""
        self.line("config", values=dict(values))

    def code(self, fingerprint: Mapping[str, object]) -> None:
        """What code ran: a fingerprint, or the hashes of the files that were imported."""
        self.line("code", fingerprint=dict(fingerprint))

    def environment(self, values: Mapping[str, object]) -> None:
        """Where it ran.  Later values lie over earlier ones, key by key."""
        self.line("environment", values=dict(values))

    def phase(self, name: str, state: str, seconds: float | None = None, **more: object) -> None:
        """A span of the run: `state` is `begin` or `end`; the end carries its length by the monotonic clock."""
        if state not in ("begin", "end"):
            raise ValueError(f"a phase begins or ends; {state!r} is neither 'begin' nor 'end'")
        self.line("phase", name=name, state=state, seconds=seconds, **more)

    def checkpoint(self, step: int, path: str, sha256: str, size: int) -> None:
        """A checkpoint lies complete on disk.  `path` is relative to the run directory, or absolute outside it."""
        self.line("checkpoint", step=step, path=path, sha256=sha256, bytes=size)

    def result(self, name: str, value: object) -> None:
        """A result of the run.  The last value of a name counts."""
        self.line("result", name=name, value=value)

    def artifact(self, name: str, path: str, sha256: str, size: int) -> None:
        """A file that the run made, complete on disk."""
        self.line("artifact", name=name, path=path, sha256=sha256, bytes=size)

    def stop_requested(self, stop: str, reason: str = "", *, message: str = "", by: str | None = None) -> None:
        """The mark: written before the signal is sent.  Only `cancel` makes the run close as cancelled."""
        if stop not in _STOPS:
            raise ValueError(f"{stop!r} is no kind of stop; one of {', '.join(_STOPS)}")
        self.line("stop_requested", stop=stop, reason=reason, message=message[-_LONGEST_TEXT:], by=by or self.by)

    def closed(
        self,
        outcome: str,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        reason: str = "",
        message: str = "",
        by: str | None = None,
        **more: object,
    ) -> None:
        """How the run ended, and in whose words.  `exit_code` is the process's own, or 128+N with `signal` N."""
        who = by or self.by
        if outcome not in _OUTCOMES:
            raise ValueError(f"{outcome!r} is no outcome; one of {', '.join(_OUTCOMES)}")
        if who == "reaper":
            more["signs"] = list(file_signs(self.directory))
        self.line(
            "closed", outcome=outcome, exit_code=exit_code, signal=signal, reason=reason,
            message=message[-_LONGEST_TEXT:], by=who, **more,
        )  # fmt: skip

    def metric(self, step: int | None, values: Mapping[str, object]) -> None:
        """Numbers of one step, in `metrics.jsonl`.  Raises ValueError for a name that a line needs itself."""
        for name in _OWN_FIELDS:
            if name in values:
                raise ValueError(f"a metric cannot be called {name!r}: every line has a field of that name")
        if self._metrics is None:
            self._metrics = Appender(os.path.join(self.directory, METRICS))
        line: dict[str, object] = {"v": _VERSION, "at": format_time(now_us()), "kind": "metric"}
        if step is not None:
            line["step"] = step
        line.update(values)
        self._metrics.append(line)

    def line(self, kind: str, **fields: object) -> None:
        """Any other kind of line.  Readers keep what they do not know out of their way."""
        line: dict[str, object] = {"v": _VERSION, "at": format_time(now_us()), "kind": kind}
        line.update((name, value) for name, value in fields.items() if value is not None)
        self._record.append(line)

    def sync(self) -> None:
        """Return once the record would survive a power loss.  Costs a disk's fsync; no method does it by itself."""
        self._record.sync()

    def close(self) -> None:
        """Close the files.  Says nothing in the record: that is `closed`."""
        self._record.close()
        if self._metrics is not None:
            self._metrics.close()


def file_signs(directory: str | os.PathLike[str]) -> tuple[int, int]:
    """Bytes of the metrics and the heartbeat's mtime in nanoseconds; -1 for a file that is not there."""
    return (
        _stat(os.path.join(os.fspath(directory), METRICS), "st_size"),
        _stat(os.path.join(os.fspath(directory), HEARTBEAT), "st_mtime_ns"),
    )


def _stat(path: str, field: str) -> int:
    try:
        return int(getattr(os.stat(path), field))
    except OSError:
        return -1
