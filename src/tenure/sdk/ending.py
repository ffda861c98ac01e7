"""How a run ends: what left the study, and whether a stop was asked for, decide it."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import NamedTuple

from .record import Record, read_record, stop_outcome
from .stopping import Interrupted, StopSignals

__all__ = ["Ending", "ending"]

_INTERRUPT, _TERMINATE = 2, 15
_LONGEST_TEXT = 16_384  # characters, of the end: a traceback says there what went wrong


class Ending(NamedTuple):
    """The end in the words of a record.  `exit_code` is the process's own, or 128+N with `signal` N."""

    outcome: str
    exit_code: int
    signal: int | None = None
    reason: str = ""
    message: str = ""
    traceback: str | None = None

    def words(self) -> dict[str, object]:
        """All but the outcome, without what is not known."""
        return {name: value for name, value in self._asdict().items() if name != "outcome" and value is not None}


def ending(problem: BaseException | None, stop: StopSignals, *, directory: Path, platform: bool) -> Ending:
    """Of the run in `directory`, whose study was left by `problem` (None: normally).  Raises OSError."""
    told = stop.signum is not None and (stop.seen or isinstance(problem, SystemExit | KeyboardInterrupt))
    if isinstance(problem, Interrupted | KeyboardInterrupt) or (told and not isinstance(problem, Exception)):
        signum = stop.signum or (_INTERRUPT if isinstance(problem, KeyboardInterrupt) else _TERMINATE)
        return _stopped(signum, read_record(directory, metrics=False), platform=platform)
    if problem is None:
        return Ending("completed", 0)
    if isinstance(problem, SystemExit):
        return _exited(problem.code, stop, directory=directory, platform=platform)
    text = "".join(traceback.format_exception(problem))
    said = "".join(traceback.format_exception_only(problem)).strip()
    return Ending(
        "failed", 1, reason=type(problem).__name__, message=said[-_LONGEST_TEXT:], traceback=text[-_LONGEST_TEXT:]
    )


def _exited(code: object, stop: StopSignals, *, directory: Path, platform: bool) -> Ending:
    if code in (None, 0):
        return Ending("completed", 0)
    number = code if isinstance(code, int) else 1
    if number in (128 + _INTERRUPT, 128 + _TERMINATE):
        record = read_record(directory, metrics=False)
        if record.stops:  # by a handler of the study's own
            return _stopped(stop.signum or _TERMINATE, record, platform=platform)
    said = f"the study called sys.exit({code!r})"
    return Ending("failed", number & 0xFF, reason="SystemExit", message=said[:_LONGEST_TEXT])


def _stopped(signum: int, record: Record, *, platform: bool) -> Ending:
    outcome = stop_outcome(record)
    if not platform and signum == _INTERRUPT:
        outcome = "cancelled"  # Ctrl-C at one's own run: nobody will bring it back
    mark = record.stops[-1] if record.stops else None
    return Ending(
        outcome, 128 + signum, signum,
        reason=(mark["reason"] or mark["stop"]) if mark else "", message=mark["message"] if mark else "",
    )  # fmt: skip
