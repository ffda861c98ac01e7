"""Follower: reads a run directory as it grows.  `read_record` is one look of it."""

from __future__ import annotations

import os

from .fold import Record
from .lines import parse
from .writer import METRICS, RECORD, file_signs

__all__ = ["Follower", "read_record"]

_CHUNK = (
    1 << 16
)  # most records are smaller, and memory for much more is fetched from the system and given back each time


class Follower:
    """Reads a run directory again and again, by offset: each `poll` folds only what was appended since.

    A last line that is still being written waits for its newline.  A missing file is an empty one; OSError is raised for
    anything else that cannot be read (no permission).  A file that has shrunk is read anew.
    """

    __slots__ = ("_files", "_offsets", "directory", "record")

    def __init__(self, directory: str | os.PathLike[str], *, metrics: bool = True) -> None:
        self.directory = os.fspath(directory)
        self.record = Record()
        self._files = (METRICS, RECORD) if metrics else (RECORD,)
        self._offsets = dict.fromkeys(self._files, 0)

    def poll(self) -> Record:
        """The record as of now; the same object each time, unless a file had to be read anew."""
        return self._look(last=False)

    def finish(self) -> Record:
        """As `poll`, and a last line that lacks nothing but its newline is taken too."""
        return self._look(last=True)

    def _look(self, *, last: bool) -> Record:
        sizes = {name: _size(os.path.join(self.directory, name)) for name in self._offsets}
        if any(sizes[name] < offset for name, offset in self._offsets.items()):
            self.record, self._offsets = Record(), dict.fromkeys(self._files, 0)
        for name in self._files:
            self._fold(name, last=last)
        self._look_at_files()
        return self.record

    def _fold(self, name: str, *, last: bool) -> None:
        try:
            file = open(os.path.join(self.directory, name), "rb", buffering=0)  # noqa: SIM115  (closed by `with` below)
        except (FileNotFoundError, NotADirectoryError):
            return
        with file:
            file.seek(self._offsets[name])
            pieces: list[bytes] = []
            while chunk := file.read(_CHUNK):
                head, newline, rest = chunk.rpartition(b"\n")
                if not newline:
                    pieces.append(chunk)
                    continue
                block = b"".join([*pieces, head, newline])
                pieces = [rest]
                self._offsets[name] += len(block)
                for line in block.split(b"\n"):
                    self._line(line)
            if last:
                self._line(b"".join(pieces))

    def _line(self, line: bytes) -> None:
        if not line.strip():
            return
        found = False
        for fields in parse(line):
            found = True
            self.record.feed(fields)
        if not found:
            self.record.damaged += 1

    def _look_at_files(self) -> None:
        """Files speak of life too: they are compared with what the reaper saw, so that no clock comes into it."""
        record = self.record
        _, beat_ns = signs = file_signs(self.directory)
        if beat_ns >= 0:
            record.last_sign_of_life = max(beat_ns // 1000, record.last_sign_of_life or 0)
        if isinstance(record.reaped_at_signs, list) and record.reaped_at_signs != list(signs):
            record._heal()


def read_record(directory: str | os.PathLike[str], *, metrics: bool = True) -> Record:
    """The record in a run directory.  An empty or missing one gives an empty Record (`run_id` is ``""``).

    Without `metrics` their file, which may be a hundred megabytes, is not read: for who asks only how the run stands.
    """
    return Follower(directory, metrics=metrics).finish()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
