"""`supervisor.jsonl`: every durable fact about an attempt, one line of JSON each, in the order in which it happened.

Each line is one write(2) with O_APPEND.  Blocks for the last lines are allocated when the file is opened, so an attempt's
end can be written down on a full disk.  A reader tolerates a torn line anywhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
from collections.abc import Mapping
from typing import Any

from .clock import Clock
from .facts import fold
from .reading import rest, whole

__all__ = ["Journal", "append_line", "open_lines", "preallocate", "read_lines"]

_KEEP_SIZE = 1  # fallocate: blocks beyond the end of the file
_RESERVED_BYTES = 16 * 1024
_libc = ctypes.CDLL(None, use_errno=True)


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


def preallocate(fd: int, bytes_: int, *, keep_size: bool = True) -> bool:
    """Allocate blocks from the current end on.  False where the file system cannot, or has none left."""
    end = os.fstat(fd).st_size
    done = _libc.fallocate(fd, _KEEP_SIZE if keep_size else 0, ctypes.c_long(end), ctypes.c_long(bytes_))
    return bool(done == 0)


def open_lines(path: str) -> int:
    """A descriptor for `append_line`.  A line torn earlier, by a crash or a full disk, is closed so that it spoils only itself.

    Raises OSError.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            os.write(fd, b"\n")
    except BaseException:
        os.close(fd)
        raise
    return fd


def append_line(fd: int, fields: Mapping[str, Any]) -> None:
    """One line, one write.  Raises OSError where it could not be written whole."""
    data = _encode(fields).encode() + b"\n"
    written = os.write(fd, data)
    if written != len(data):  # a full disk took a part
        with contextlib.suppress(OSError):
            os.write(fd, b"\n")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_lines(path: str) -> list[dict[str, Any]]:
    """All whole lines; none where there is no file.  Raises OSError where it cannot be read."""
    try:
        return _lines(whole(path))
    except FileNotFoundError:
        return []


def _lines(data: bytes) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for raw in data.split(b"\n"):
        try:
            value = json.loads(raw)
        except ValueError:
            continue
        if isinstance(value, dict) and "kind" in value:
            lines.append(value)
    return lines


class Journal:
    """The writer.  `facts` is the fold of everything written, lines found at opening included."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._clock = clock
        self.full_disk = False
        self._fd = open_lines(path)
        self.facts = fold(_lines(rest(self._fd)))
        preallocate(self._fd, _RESERVED_BYTES)

    def write(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Append a fact.  Where it cannot be written it lives on in `facts` (and so in the news), and `full_disk` says so."""
        line = {"v": 1, "at": self._clock.wall(), "elapsed": self._clock.elapsed(), "kind": kind, **fields}
        self.facts.feed(line)
        try:
            append_line(self._fd, line)
        except OSError:
            self.full_disk = True
        return line

    def close(self) -> None:
        """Give the unused part of the reserve back."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, os.fstat(self._fd).st_size)
        os.close(self._fd)
