"""What the gateway wrote of requests for inference, read back: whose they were and when; nothing else is looked at.

Promises: every file of its journal is read, also those that were set aside; a torn or foreign line is passed over; what
has been counted once is not read again.  A line is written when its request has ended (`at`), so a file is in the order
of the ends.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

__all__ = ["Hours", "Seen", "files_in", "seen_of"]

HOUR_S = 3600
HOURS = 24
CHUNK = 1 << 20
LINE = 1 << 16
_STAMP = re.compile(rb'^\{"at":(\d+)(?:\.\d+)?,"model":"([^"\\]*)"[^\n]*\}\n', re.M)
"""A line as the journal writes it, `at` first: many times faster than JSON, which any other line is read as."""
_WHOLE = re.compile(
    rb'^\{"at":(\d+(?:\.\d+)?),"model":"([^"\\]*)",[^\n]*?"status":(\d+),[^\n]*?"held_s":(\d+(?:\.\d+)?),'
    rb'[^\n]*?"seconds":(\d+(?:\.\d+)?),"run":(null|")[^\n]*\}\n',
    re.M,
)
"""The same, with all that advice is read from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Requests for one model as (begin, seconds at its server), and since when anything at all was written down."""

    requests: tuple[tuple[float, float], ...]
    first_at: float | None


def files_in(folder: Path) -> list[Path]:
    """The journal and what was set aside of it, the oldest first; one that is being packed once."""
    found = []
    for path in {*folder.glob("requests*.jsonl"), *folder.glob("requests*.jsonl.gz")}:
        if path.suffix != ".gz" and path.with_name(path.name + ".gz").exists():
            continue
        try:
            found.append((path.stat().st_mtime_ns, path))
        except FileNotFoundError:
            continue  # set aside, or dropped, in this moment
    return [path for _, path in sorted(found)]


def seen_of(folder: Path, model: str, *, since: float) -> Seen:
    """The requests that asked `model` to work since then.  Those that were refused for what they are never did."""
    requests: list[tuple[float, float]] = []
    first_at: float | None = None
    read: set[tuple[int, int]] = set()  # a file that is set aside while we read comes under its new name, too
    for path in files_in(folder):
        try:
            with _opened(path) as file:
                status = os.fstat(file.fileno())
                if status.st_size and status.st_mtime < since:  # its last line is older, and so there was a journal
                    first_at = status.st_mtime if first_at is None else first_at
                    continue
                if (status.st_dev, status.st_ino) in read:
                    continue
                read.add((status.st_dev, status.st_ino))
                for block in _blocks(file):
                    begin = _requests_in(block, model, since=since, into=requests)
                    first_at = begin if first_at is None else first_at
        except (OSError, EOFError):
            continue
    return Seen(requests=tuple(requests), first_at=first_at)


def _blocks(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    """Whole lines, many at a time; a torn one at the end is left out."""
    rest = b""
    while chunk := file.read(CHUNK):
        whole, _, rest = (rest + chunk).rpartition(b"\n")
        if whole:
            yield whole + b"\n"
        elif len(rest) > LINE:
            rest = b""  # no line of ours


def _requests_in(block: bytes, model: str, *, since: float, into: list[tuple[float, float]]) -> float | None:
    """Adds (begin, service) of each request for the model; answers when the first of anybody's began."""
    plain = _WHOLE.findall(block)
    if len(plain) == block.count(b"\n"):
        name = model.encode()
        for at, whose, status, held, seconds, run in plain:
            if whose == name:
                begin = float(at) - float(seconds)
                if begin >= since and (run != b"null" or not 400 <= int(status) < 499):
                    into.append((begin, max(0.0, float(seconds) - float(held))))
        return float(plain[0][0]) - float(plain[0][4])
    first: float | None = None
    for raw in block.splitlines():
        line = _line(raw)
        if line is None:
            continue
        took = _seconds(line.get("seconds"))
        begin = line["at"] - took
        first = begin if first is None else first
        if line.get("model") == model and begin >= since and _worked(line):
            into.append((begin, max(0.0, took - _seconds(line.get("held_s")))))
    return first


def _opened(path: Path) -> gzip.GzipFile | IO[bytes]:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    try:
        return path.open("rb")
    except FileNotFoundError:
        return gzip.open(path.with_name(path.name + ".gz"), "rb")  # it has just been packed


def _line(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    good = isinstance(line, dict) and isinstance(line.get("at"), int | float)
    return line if good else None


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else 0.0


def _worked(line: dict[str, Any]) -> bool:
    """A request that the gateway turned away by itself (no such model, no right, too many) asked nobody to wake."""
    status = line.get("status")
    refused = isinstance(status, int) and 400 <= status < 499
    return line.get("run") is not None or not refused


class Hours:
    """Requests by model and hour, for a page that is looked at often: each look reads what is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._one = threading.Lock()
        self._read: dict[tuple[int, int], int] = {}
        self._counts: Counter[tuple[str, int]] = Counter()

    def of(self, model: str, *, now: float) -> list[int]:
        """So many in each of the last 24 hours, by the clock's hours; the last is the one that runs."""
        hour = int(now // HOUR_S)
        return [self._counts[(model, hour - back)] for back in range(HOURS - 1, -1, -1)]

    def look(self, *, now: float) -> None:
        """Take in what has been written since the last look."""
        oldest = int(now // HOUR_S) - HOURS + 1
        with self._one:
            for key in [key for key in self._counts if key[1] < oldest]:
                del self._counts[key]
            read: dict[tuple[int, int], int] = {}
            for path in files_in(self._folder):
                if path.suffix == ".gz":
                    continue
                try:
                    with path.open("rb") as file:
                        status = os.fstat(file.fileno())
                        which = (status.st_dev, status.st_ino)
                        if which in read:
                            continue
                        at = self._read.get(which)
                        if at is None or at > status.st_size:
                            at = _first_since(file, oldest * HOUR_S, size=status.st_size)
                        read[which] = at if at >= status.st_size else self._take(file, at, oldest=oldest)
                except OSError:
                    continue
            self._read = read

    def _take(self, file: IO[bytes], at: int, *, oldest: int) -> int:
        """Count the whole lines from there on; where the next look begins."""
        file.seek(at)
        rest = b""
        while chunk := file.read(CHUNK):
            whole, _, rest = (rest + chunk).rpartition(b"\n")
            if whole:
                at += len(whole) + 1
                for second, model in _stamps(whole + b"\n"):
                    hour = int(second // HOUR_S)
                    if hour >= oldest and model:
                        self._counts[(model, hour)] += 1
            elif len(rest) > LINE:
                at, rest = at + len(rest), b""  # no line of ours
        return at


def _stamps(block: bytes) -> Iterable[tuple[float, str]]:
    """(`at`, model) of each line; at a fifth of the price where all of them are as the journal writes them."""
    plain = _STAMP.findall(block)
    if len(plain) == block.count(b"\n"):
        return [(int(at), model.decode("utf-8", "replace")) for at, model in plain]
    return list(_slowly(block))


def _slowly(block: bytes) -> Iterator[tuple[float, str]]:
    for raw in block.splitlines():
        line = _line(raw)
        if line is not None:
            yield float(line["at"]), str(line.get("model") or "")


def _first_since(file: IO[bytes], since: float, *, size: int) -> int:
    """Where the first line that ended since then begins, by halving: a long past is not read."""
    low, high = 0, size
    while high - low > LINE:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline(LINE)
        begin = file.tell()
        line = _line(file.readline(LINE))
        if line is not None and line["at"] < since and begin < high:
            low = begin
        else:
            high = middle
    return low
