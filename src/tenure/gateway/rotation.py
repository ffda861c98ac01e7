"""A file of lines that grows, is set aside by day and size, and is dropped after its days.

Promises: what has been set aside is kept for `days` days after its last line, packed once it is older than a day, and
dropped earlier only where all of it is more than `total` bytes; a line is written whole; writing never raises.
"""

from __future__ import annotations

import gzip
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable
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
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._open()

    def write(self, lines: Iterable[bytes]) -> None:
        """Each with its newline."""
        try:
            now = time.time()
            if self._size and (self._size > self._part or now - self._began > DAY_S):
                self._set_aside(now)
            self._size += os.write(self._fd, b"".join(lines))
        except OSError as error:
            log.warning("%s cannot be written: %s", self.path, error)

    def close(self) -> None:
        os.close(self._fd)

    def tidy(self, now: float | None = None) -> None:
        """Pack and drop what is old enough."""
        now = time.time() if now is None else now
        kept = self._size
        for path in sorted(self._parts(), key=lambda path: path.stat().st_mtime, reverse=True):
            status = path.stat()
            if now - status.st_mtime > self._days * DAY_S or kept + status.st_size > self._total:
                path.unlink(missing_ok=True)
                continue
            old = path.suffix != ".gz" and now - status.st_mtime > PLAIN_S
            kept += _packed(path).stat().st_size if old else status.st_size

    def _parts(self) -> list[Path]:
        name = f"{self.path.stem}.*.jsonl"
        return [*self.path.parent.glob(name), *self.path.parent.glob(name + ".gz")]

    def _set_aside(self, now: float) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f".{int(now * 1e6) % 1_000_000:06d}"
        os.close(self._fd)
        self.path.replace(self.path.with_name(f"{self.path.stem}.{stamp}.jsonl"))
        self._open()
        if self.aside is None:
            self.tidy()
        else:
            self.aside(self.tidy)

    def _open(self) -> None:
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        status = os.fstat(self._fd)
        self._size = status.st_size
        self._began = time.time()
        if self._size:  # another process began it; when, its first line says, and no file system surely does
            first = os.pread(self._fd, 64, 0)
            stamp = first.partition(b'"at":')[2].partition(b",")[0]
            try:
                self._began = float(stamp)
            except ValueError:
                self._began = status.st_mtime
            if os.pread(self._fd, 1, self._size - 1) != b"\n":
                self._size += os.write(self._fd, b"\n")  # its last line was torn


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
