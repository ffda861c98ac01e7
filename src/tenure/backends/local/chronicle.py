"""The supervisor's share of the run's record, and the blocks that are kept so that its last words fit on a full disk.

The blocks belong to the lock file, which is there anyway and has no content: a file of their own for each attempt,
made and unlinked, costs more than all of the record (on ext4 without a journal the more, the more were unlinked lately).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from tenure.sdk.environment import machine
from tenure.sdk.record import RECORD, RecordWriter, read_record

from .journal import preallocate
from .layout import LOCK, SCRIPT

__all__ = ["Chronicle"]

_RESERVE_BYTES = 8 * 1024


class Chronicle:
    """Says what the supervisor knows, and reads what the run said of itself."""

    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir
        self._reserve = os.path.join(run_dir, LOCK)
        self._record: RecordWriter | None = None
        self._size = -1  # of the record while nobody but us has written
        self.in_trouble = False  # something could not be written

    def open(self, spec: dict[str, Any]) -> None:
        """Begin the record and set the reserve aside.  Raises OSError: what cannot be recorded must not start."""
        job = spec["job"]
        self._record = RecordWriter(self._run_dir, by="supervisor")
        self._record.opened(
            run_id=spec["run_id"], job_id=spec["job_id"], attempt=spec["number"], retry_of=spec["retry_of"], name=job["name"],
            argv=job["argv"] or [SCRIPT, *job["script_args"]], code=job["fingerprint"] or None,
            environment={**machine(), "card": spec["env"].get("TENURE_CARD", "none"), "cards_given": _cards(spec)},
        )  # fmt: skip
        fd = os.open(self._reserve, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        preallocate(fd, _RESERVE_BYTES, keep_size=False)
        os.close(fd)
        self._size = os.path.getsize(os.path.join(self._run_dir, RECORD))

    def say(self, words: Callable[[RecordWriter], None]) -> None:
        """Words that must stand in the record: on a full disk the reserve is given up for them.

        What cannot be said all the same is no reason to end an attempt: it stands in the news, and in the journal.
        """
        with contextlib.suppress(OSError):
            if self._disk_is_full():
                os.truncate(self._reserve, 0)
        try:
            self._record = self._record or RecordWriter(self._run_dir, by="supervisor")
            words(self._record)
        except OSError:
            self.in_trouble = True

    def own_words(self) -> dict[str, Any] | None:
        """How the run closed its own record, if it did."""
        with contextlib.suppress(OSError):
            if os.path.getsize(os.path.join(self._run_dir, RECORD)) == self._size:
                return None
            record = read_record(self._run_dir)
            if record.closed is not None and record.closed["by"] == "run":
                return {
                    "outcome": record.outcome,
                    "reason": record.closed["reason"],
                    "message": record.closed["message"],
                }
        return None

    def disk_trouble(self) -> str:
        """What to add to the last message; `""` on a healthy disk."""
        with contextlib.suppress(OSError):
            if self.in_trouble or self._disk_is_full():
                return " (the disk under the run directory is full or failing: output may be missing)"
        return ""

    def _disk_is_full(self) -> bool:
        status = os.statvfs(self._run_dir)
        blocks = status.f_bavail if os.geteuid() else status.f_bfree
        return blocks * status.f_frsize < _RESERVE_BYTES

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.truncate(self._reserve, 0)
        if self._record is not None:
            self._record.close()


def _cards(spec: dict[str, Any]) -> list[str]:
    """The cards that the platform gave it, rank by rank, each once."""
    return list(dict.fromkeys(card for seat in spec["processes"] for card in seat["cards"]))
