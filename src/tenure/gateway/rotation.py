"""A file of lines that grows, is set aside by day and size, and is dropped after its days.

Promises: what has been set aside is kept for `days` days after its last line, packed once it is older than a day, and
dropped earlier only where all of it is more than `total` bytes; a line that a full disk has cut spoils no other; writing
never raises; a file that somebody has removed is begun anew.
"""

from __future__ import annotations

import gzip
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["Rotated"]

log = logging.getLogger("tenure.gateway")

DAY_S = 86400.0
DAYS = 8
PART = 32 * 1024 * 1024
TOTAL = 512 * 1024 * 1024
PLAIN_S = DAY_S + 3600  # so long they can be read as they are: pages count the last day


class Rotated:
    """`aside(work)` does what takes long (packing, dropping) elsewhere; without it that is done at once."""

    def __init__(
        self,
        path: Path,
        *,
        days: int = DAYS,
        part: int = PART,
        total: int = TOTAL,
        aside: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self.path, self._days, self._part, self._total = path, days, part, total
        self.aside = aside
        self._tidying = threading.Lock()
        self._fd, self._size, self._began = self._open()
        self._torn = False  # the last line is not whole

    def write(self, lines: Iterable[bytes]) -> None:
        """Each with its newline."""
        try:
            now = time.time()
            if self._size and (self._size > self._part or now - self._began > DAY_S):
                self._set_aside(now)
            elif os.fstat(self._fd).st_nlink == 0:
                self._begin_anew()
            whole = (b"\n" if self._torn else b"") + b"".join(lines)
            written = os.write(self._fd, whole)
            self._size, self._torn = self._size + written, written < len(whole)
        except OSError as error:
            log.warning("%s cannot be written: %s", self.path, error)

    def close(self) -> None:
        os.close(self._fd)

    def tidy(self, now: float | None = None) -> None:
        """Pack and drop what is old enough.  From any thread; never raises."""
        try:
            with self._tidying:
                self._tidy(time.time() if now is None else now)
        except OSError as error:
            log.warning("what was set aside of %s cannot be packed or dropped: %s", self.path, error)

    def _tidy(self, now: float) -> None:
        kept = self._size
        for path, status in sorted(self._parts(), key=lambda part: part[1].st_mtime, reverse=True):
            if now - status.st_mtime > self._days * DAY_S or kept + status.st_size > self._total:
                path.unlink(missing_ok=True)
                continue
            old = path.suffix != ".gz" and now - status.st_mtime > PLAIN_S
            kept += _packed(path).stat().st_size if old else status.st_size

    def _parts(self) -> list[tuple[Path, os.stat_result]]:
        name = f"{self.path.stem}.*.jsonl"
        found = []
        for path in (*self.path.parent.glob(name), *self.path.parent.glob(name + ".gz")):
            with suppress(FileNotFoundError):  # removed by somebody in this moment
                found.append((path, path.stat()))
        return found

    def _set_aside(self, now: float) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f".{int(now * 1e6) % 1_000_000:06d}"
        with suppress(FileNotFoundError):
            self.path.replace(self.path.with_name(f"{self.path.stem}.{stamp}.jsonl"))
        self._begin_anew()
        if self.aside is None:
            self.tidy()
        else:
            self.aside(self.tidy)

    def _begin_anew(self) -> None:
        """The old descriptor goes once there is a new one: closed before, its number might be somebody's connection."""
        before = self._fd
        self._fd, self._size, self._began = self._open()
        self._torn = False
        os.close(before)

    def _open(self) -> tuple[int, int, float]:
        """Its descriptor, its size, and when it was begun.  Raises OSError."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        status = os.fstat(fd)
        size, began = status.st_size, time.time()
        if size:  # another process began it; when, its first line says, and no file system surely does
            stamp = os.pread(fd, 64, 0).partition(b'"at":')[2].partition(b",")[0]
            try:
                began = float(stamp)
            except ValueError:
                began = status.st_mtime
            if os.pread(fd, 1, size - 1) != b"\n":
                size += os.write(fd, b"\n")  # its last line was torn
        return fd, size, began


def _packed(path: Path) -> Path:
    """The same lines in a fifth of the room, and of the same age."""
    status, packed = path.stat(), path.with_name(path.name + ".gz")
    fresh = path.with_name(path.name + ".gz.new")
    with (
        path.open("rb") as plain,
        open(fresh, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, filename="", mtime=0) as file,
    ):
        shutil.copyfileobj(plain, file, 1 << 20)
    os.utime(fresh, ns=(status.st_atime_ns, status.st_mtime_ns))
    fresh.replace(packed)
    path.unlink()
    return packed
