"""The lock that proves that a supervisor lives.

An open-file-description lock: it ends with the last copy of the descriptor, so no crash can leave it behind, and unlike
flock(2) it can be *asked about* without being taken: a look never gets in the way of a start.
"""

from __future__ import annotations

import fcntl
import os
import struct

__all__ = ["is_locked", "try_lock"]

_FLOCK = "hhqqi4x"  # struct flock on 64-bit Linux: type, whence, start, length, pid


def _request(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)


def try_lock(path: str) -> int | None:
    """Take the lock and return its descriptor (close-on-exec), or None where somebody else has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _request(fcntl.F_WRLCK))
    except (BlockingIOError, PermissionError):
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return fd


def is_locked(path: str) -> bool:
    """Does somebody hold the lock?  No file means no.  Raises OSError where it cannot be told."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _request(fcntl.F_WRLCK))
    finally:
        os.close(fd)
    kind: int = struct.unpack(_FLOCK, answer)[0]
    return kind != fcntl.F_UNLCK
