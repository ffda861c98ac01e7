"""Who runs the platform here: the process that holds the lock, never a pid file alone."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import time
from typing import NamedTuple

from tenure.settings import Settings

__all__ = ["Holder", "Watch", "address", "holder"]


LOOKS = 4  # the kernel hands its list over page by page: a lock that others end before may fall between two


class Holder(NamedTuple):
    """`pid` is None where the kernel does not say who holds the lock."""

    pid: int | None


def holder(settings: Settings) -> Holder | None:
    """The process that holds the daemon's lock now; None if nobody does.

    Asked of the kernel's list of locks, so that looking never holds the lock itself, which would turn away a daemon
    that starts in that instant.
    """
    path = settings.daemon_dir / "lock"
    try:
        found = os.stat(path)
    except OSError:
        return None
    try:
        for _ in range(LOOKS):
            with open("/proc/locks", encoding="ascii") as lines:
                for line in lines:
                    pid = _flock_on(line, found)
                    if pid is not None:
                        return Holder(pid or None)
        return None
    except OSError:
        return _by_trying(settings)


def _flock_on(line: str, found: os.stat_result) -> int | None:
    """`1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF`: the pid, if it is a lock on that file."""
    words = line.split()
    if "->" in words or len(words) < 6 or words[1] != "FLOCK":
        return None
    major, minor, inode = words[5].split(":")
    if int(inode) != found.st_ino or (int(major, 16), int(minor, 16)) != (
        os.major(found.st_dev),
        os.minor(found.st_dev),
    ):
        return None
    return max(0, int(words[4]))


def _by_trying(settings: Settings) -> Holder | None:
    with open(settings.daemon_dir / "lock", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                return Holder(int(json.load(file)["pid"]))
            return Holder(None)
    return None


class Watch:
    """One daemon, pinned by a descriptor, so that no stranger under a reused pid is ever signalled or waited for."""

    def __init__(self, settings: Settings, who: Holder) -> None:
        self._settings, self._who = settings, who
        self._fd: int | None = None
        if who.pid is not None:
            try:
                self._fd = os.pidfd_open(who.pid)
            except ProcessLookupError:
                return  # it has ended, which `ended` will find by the lock
            if holder(settings) != who:
                self.close()

    def terminate(self, *, keep_jobs: bool) -> None:
        """Ask it to stop, by signal."""
        if self._fd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, signal.SIGUSR1 if keep_jobs else signal.SIGTERM)

    def ended(self, within_s: float) -> bool:
        """Whether the whole process has ended, waited for at most that long."""
        if self._fd is not None:
            asked = select.poll()
            asked.register(self._fd, select.POLLIN)
            return bool(asked.poll(within_s * 1000))
        time.sleep(min(within_s, 0.05))
        return holder(self._settings) != self._who

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def address(settings: Settings) -> str | None:
    """Where the portal said it listens; None if it never did."""
    try:
        said = json.loads((settings.daemon_dir / "address.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    url = said.get("url") if isinstance(said, dict) else None
    if url:
        return str(url)
    return f"http://{said['host']}:{said['port']}" if isinstance(said, dict) and "port" in said else None
