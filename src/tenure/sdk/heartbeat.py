"""The heartbeat: a thread that touches a file, so that a run without news is still known to be alive.

It costs one `utime` every few seconds.  It beats for the process, not for its progress: progress is what a study logs.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from .writer import HEARTBEAT, RecordWriter

__all__ = ["Heartbeat"]

_SLOWEST_S = 10.0
_FASTEST_S = 0.05


class Heartbeat:
    """Beats from `start` to `stop`.  A run that comes back after a silence longer than it declared says so itself."""

    def __init__(self, writer: RecordWriter, quiet_after_s: float | None) -> None:
        self._writer = writer
        self._path = os.path.join(writer.directory, HEARTBEAT)
        self.quiet_after_s = quiet_after_s
        self._wake = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    @property
    def interval_s(self) -> float:
        """A fifth of the bound, so that some beats may be late; ten seconds at most."""
        bound = self.quiet_after_s
        return _SLOWEST_S if bound is None else min(_SLOWEST_S, max(_FASTEST_S, bound / 5))

    def start(self) -> None:
        self._touch()
        self._thread = threading.Thread(target=self._beat, name="tenure-heartbeat", daemon=True)
        self._thread.start()

    def retime(self, quiet_after_s: float | None) -> None:
        """Beat for another bound from now on."""
        self.quiet_after_s = quiet_after_s
        self._wake.set()

    def stop(self) -> None:
        self._ended = True
        self._wake.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(timeout=1.0)

    def _beat(self) -> None:
        before = time.monotonic()
        while True:
            self._wake.wait(self.interval_s)
            if self._ended:
                return
            self._wake.clear()
            self._touch()
            now = time.monotonic()
            bound = self.quiet_after_s
            if bound is not None and now - before > bound:  # it was stopped, or starved: the reaper may have given up
                with contextlib.suppress(OSError):
                    self._writer.line("alive", silent_s=round(now - before, 3))
            before = now

    def _touch(self) -> None:
        try:
            os.utime(self._path)
        except FileNotFoundError:
            with contextlib.suppress(OSError):
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        except OSError:
            pass  # a full or vanished disk is told by the next line that matters
