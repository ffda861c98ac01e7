"""Checkpoints: files that are whole or not there.

A checkpoint's name holds its step and the beginning of its hash, so that one rename makes data and hash appear together
and any later run can verify it without asking a record.  Nothing is ever overwritten.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import IO

__all__ = ["Checkpoint", "Checkpoints", "Content", "write_whole"]

Content = bytes | bytearray | memoryview | str | Callable[[IO[bytes]], object]

_NAME = re.compile(r"(?P<name>.*)step-(?P<step>\d{12,})-(?P<hash>[0-9a-f]{16})\.ckpt", re.DOTALL)
_TEMPORARY = re.compile(r"\.writing-(\d+)-\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint on disk.  `path` is absolute, `size` in bytes."""

    step: int
    path: Path
    sha256: str
    size: int

    def open(self) -> BufferedReader:
        """The file, for reading."""
        return self.path.open("rb")

    def read(self) -> bytes:
        return self.path.read_bytes()


class Checkpoints:
    """The checkpoints in `directory`, and behind them those of the runs that it continues (`chain`, newest first).

    `prefix` keeps apart what several processes of one run write.  `keep` is how many of the newest stay; None: all.
    """

    def __init__(
        self, directory: Path, *, chain: Sequence[Path] = (), prefix: str = "", keep: int | None = None
    ) -> None:
        if keep is not None and keep < 1:
            raise ValueError(f"keep={keep}: at least the newest checkpoint has to stay")
        self.directory, self.chain, self.prefix, self.keep = directory, tuple(chain), prefix, keep

    def write(self, step: int, content: Content) -> Checkpoint:
        """Write one.  It is on the disk, synced, when this returns.  The same step with the same content is one file.

        Raises OSError (and leaves nothing behind), or what `content` raised.
        """
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise ValueError(f"a checkpoint's step is a whole number of at least 0, not {step!r}")

        def name(sha256: str) -> str:
            return f"{self.prefix}step-{step:012d}-{sha256[:16]}.ckpt"

        path, sha256, size = write_whole(self.directory, name, content)
        self._tidy()
        return Checkpoint(step=step, path=path, sha256=sha256, size=size)

    def latest(self) -> Checkpoint | None:
        """The newest that is intact: its bytes are hashed, and one that does not match is passed over for the one before.

        A process of a gang that wrote none of its own takes those of rank 0.
        """
        for prefix in dict.fromkeys((self.prefix, "")):
            found = [(step, path, digest) for folder in (self.directory, *self.chain) for step, path, digest in
                     self._list(folder, prefix)]  # fmt: skip
            # newest step first; of one step, the file that was written last
            for _, path, digest in sorted(found, key=lambda item: (item[0], _mtime(item[1])), reverse=True):
                checkpoint = _verified(path, digest)
                if checkpoint is not None:
                    return checkpoint
        return None

    def _list(self, folder: Path, prefix: str) -> Iterator[tuple[int, Path, str]]:
        try:
            names = os.listdir(folder)
        except OSError:
            return
        for name in names:
            match = _NAME.fullmatch(name)
            if match and match["name"] == prefix:
                yield int(match["step"]), folder / name, match["hash"]

    def _tidy(self) -> None:
        if self.keep is not None:
            own = sorted(self._list(self.directory, self.prefix), key=lambda item: (item[0], _mtime(item[1])))
            for _, path, _ in own[: -self.keep]:
                path.unlink(missing_ok=True)
        for name in os.listdir(self.directory):
            match = _TEMPORARY.fullmatch(name)
            if match and not _lives(int(match[1])):  # a writer was killed in the middle
                (self.directory / name).unlink(missing_ok=True)


def write_whole(
    directory: Path, name: Callable[[str], str], content: Content, *, replace: bool = False
) -> tuple[Path, str, int]:
    """Write a file under a temporary name, sync it, and give it the name that `name(sha256)` says.

    Returns its path, sha256 and size.  An existing file of that name is kept, or with `replace` atomically exchanged.
    """
    directory.mkdir(parents=True, exist_ok=True)
    temporary, file = _temporary(directory)
    try:
        with file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            size = os.fstat(file.fileno()).st_size
        path = directory / name(sha256)
        if replace:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.replace(path)
        else:
            with contextlib.suppress(FileExistsError):
                _link(temporary, path)
        _sync_directory(path.parent)
        return path, sha256, size
    finally:
        temporary.unlink(missing_ok=True)


_count = 0


def _temporary(directory: Path) -> tuple[Path, BufferedRandom]:
    global _count  # noqa: PLW0603  (names differ within a process; the pid tells processes apart)
    while True:
        _count += 1
        path = directory / f".writing-{os.getpid()}-{_count}"
        with contextlib.suppress(FileExistsError):
            return path, path.open("x+b")


def _link(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise FileExistsError(str(path)) from None
        temporary.rename(path)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _verified(path: Path, digest: str) -> Checkpoint | None:
    match = _NAME.fullmatch(path.name)
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return None
    if match is None or not sha256.startswith(digest):
        return None
    return Checkpoint(step=int(match["step"]), path=path.absolute(), sha256=sha256, size=size)


def _mtime(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
