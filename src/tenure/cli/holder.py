"""Who runs the platform here: the process that holds the lock, never a pid file alone."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from typing import NamedTuple

from tenure.settings import Settings

__all__ = ["Holder", "address", "holder", "terminate"]


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


def terminate(settings: Settings, *, keep_jobs: bool) -> bool:
    """Ask the lock's holder to stop, by signal.  False if there is nobody to ask.

    The process is pinned by a descriptor first and the lock looked at again, so that no stranger under a reused pid is
    ever signalled.
    """
    first = holder(settings)
    if first is None or first.pid is None:
        return False
    try:
        pinned = os.pidfd_open(first.pid)
    except ProcessLookupError:
        return False
    try:
        if holder(settings) != first:
            return False
        signal.pidfd_send_signal(pinned, signal.SIGUSR1 if keep_jobs else signal.SIGTERM)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(pinned)


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
