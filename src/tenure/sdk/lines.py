"""Lines of JSON that several writers may append to and that a crash may cut.

A line goes out in one write(2) on a descriptor with O_APPEND, newline included, so that lines of threads and processes
never mix.  What a crash leaves is at most one torn piece per crash; `parse` skips it and finds what was glued behind it.

Imported by every supervisor: no `json`, `re`, `typing` or `dataclasses` at import (each costs more than this package
may), and the encoder below does what a record needs of JSON.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["Appender", "encode", "format_time", "now_us", "parse", "parse_time", "plain"]

START = '{"v":'  # every line begins with it: that is how a reader finds the next whole one behind a torn one

_ESCAPES = {i: f"\\u{i:04x}" for i in range(32)} | {34: '\\"', 92: "\\\\", 8: "\\b", 9: "\\t", 10: "\\n", 13: "\\r"}
_DEEPEST = 40
_EPOCH_DAY = 719_163  # the ordinal of 1970-01-01

_lazy: dict[str, Any] = {}  # what only readers need, once they do


def now_us() -> int:
    """Microseconds since the epoch, by the wall clock."""
    return time.time_ns() // 1000


def format_time(at_us: int) -> str:
    """RFC 3339, UTC, microseconds: `2026-11-29T21:30:00.123456Z`."""
    seconds, micros = divmod(at_us, 1_000_000)
    t = time.gmtime(seconds)
    return f"{t[0]:04d}-{t[1]:02d}-{t[2]:02d}T{t[3]:02d}:{t[4]:02d}:{t[5]:02d}.{micros:06d}Z"


def parse_time(text: object) -> int | None:
    """The inverse of `format_time`; other RFC 3339 spellings are read too.  None for what is no time."""
    if not isinstance(text, str):
        return None
    try:
        moment = _datetime().fromisoformat(text)
        offset = moment.utcoffset()
        days, seconds = moment.toordinal() - _EPOCH_DAY, moment.hour * 3600 + moment.minute * 60 + moment.second
        at: int = (days * 86_400 + seconds) * 1_000_000 + moment.microsecond
    except ValueError:
        return None
    return at if not offset else at - (offset.days * 86_400 + offset.seconds) * 1_000_000


def plain(value: object, _depth: int = 0) -> object:
    """`value` as JSON can hold it: scalars of numpy and torch by `.item()`, dataclasses as objects, sets sorted,
    paths as text, NaN and infinities as the words `NaN`, `Infinity`, `-Infinity`, anything else by its `repr`."""
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str or kind is int:
        return value
    if isinstance(value, float):
        if value != value:  # noqa: PLR0124  (NaN alone; importing math for it costs more)
            return "NaN"
        if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
        return float(value)
    if _depth > _DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {str(_key(k)): plain(v, _depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v, _depth + 1) for v in value]
    if hasattr(value, "value") and hasattr(value, "name") and hasattr(kind, "__members__"):  # an Enum
        return plain(value.value, _depth + 1)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, set | frozenset):
        return sorted((plain(v, _depth + 1) for v in value), key=repr)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    fields = getattr(kind, "__dataclass_fields__", None)
    if fields is not None:
        return {name: plain(getattr(value, name, None), _depth + 1) for name in fields}
    keys = getattr(value, "keys", None)
    if callable(keys) and hasattr(value, "__getitem__"):
        return {str(_key(key)): plain(value[key], _depth + 1) for key in keys()}
    for convert in ("item", "tolist"):  # numpy and torch: a scalar, then an array
        method = getattr(value, convert, None)
        if callable(method):
            try:
                converted = method()
            except (TypeError, ValueError, RuntimeError):
                continue
            if converted is not value:
                return plain(converted, _depth + 1)
    return repr(value)


def _key(key: object) -> object:
    key = plain(key)
    return key if isinstance(key, str) else encode(key)


def encode(value: object) -> str:
    """JSON text on one line, without spaces.  `value` is made `plain` first."""
    return _encode(plain(value))


def _encode(value: object) -> str:
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, dict):
        return "{" + ",".join([f'"{k.translate(_ESCAPES)}":{_encode(v)}' for k, v in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ",".join([_encode(v) for v in value]) + "]"
    return repr(value)


def _to_bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates: argv that was no UTF-8.  JSON's own escape keeps them
        return "".join(f"\\u{ord(c):04x}" if 0xD800 <= ord(c) <= 0xDFFF else c for c in text).encode()


class Appender:
    """One open file of lines.  Safe to share between threads and across `fork`; opened close-on-exec.

    Raises OSError where the file cannot be opened or a line could not be written whole; then a reader sees either
    nothing of the line or a torn piece, and the next line starts afresh.
    """

    __slots__ = ("_fd", "_torn", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._torn = self._ends_torn()

    def append(self, fields: dict[str, object]) -> None:
        """Write one line, whole or not at all."""
        data = _to_bytes(encode(fields)) + b"\n"
        for _ in range(3):
            whole = b"\n" + data if self._torn else data
            written = os.write(self._fd, whole)
            self._torn = written < len(whole)
            if not self._torn:
                return
        # a short write is a full disk, and the next try says so with ENOSPC; this is for a file system that does not
        raise OSError(28, "the line could not be written whole", self.path)

    def sync(self) -> None:
        """Return once what was appended would survive a power loss."""
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _ends_torn(self) -> bool:
        size = os.fstat(self._fd).st_size
        return size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"


def parse(line: bytes) -> Iterator[dict[str, object]]:
    """The objects in one line: one as a rule; none of a torn line; those behind a torn piece that they were glued to."""
    decoder = _decoder()
    try:
        whole = decoder.decode(line.decode())
    except (ValueError, RecursionError):
        pass
    else:
        if isinstance(whole, dict):
            yield whole
            return
    text = line.decode("utf-8", "replace").strip()
    position = 0
    while 0 <= position < len(text):
        try:
            found, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            position = text.find(START, position + 1)
            continue
        if isinstance(found, dict):
            yield found
            position = text.find(START, end)
        else:  # no line of ours, and it may have swallowed the beginning of one
            position = text.find(START, position + 1)


def _decoder() -> Any:
    if "json" not in _lazy:
        import json

        _lazy["json"] = json.JSONDecoder()
    return _lazy["json"]


def _datetime() -> Any:
    if "datetime" not in _lazy:
        from datetime import datetime

        _lazy["datetime"] = datetime
    return _lazy["datetime"]
