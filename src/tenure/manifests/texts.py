"""The texts of files: bytes to text, and the files of a directory.  What cannot be read becomes a Problem."""

from __future__ import annotations

from pathlib import Path

from tenure.domain.errors import Problem

__all__ = ["decode", "read_directory"]

SUFFIXES = (".json", ".yaml", ".yml")


def decode(file: str, data: bytes) -> tuple[str, tuple[Problem, ...]]:
    """UTF-8 (with or without a byte order mark) as text; a Problem that names the line otherwise."""
    try:
        return data.decode("utf-8-sig"), ()
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        byte = data[e.start]
        message = f"not UTF-8: byte 0x{byte:02x} at offset {e.start}; save the file as UTF-8"
        return "", (Problem(file=file, document=None, line=line, field="", message=message),)


def read_directory(path: Path) -> tuple[tuple[tuple[str, str], ...], tuple[Problem, ...]]:
    """The texts of `*.yaml`, `*.yml` and `*.json` directly under `path`, sorted by name; hidden files are left out.

    A directory that is missing or unreadable, and a file that is, become Problems.
    """
    try:
        names = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES and not p.name.startswith("."))
    except OSError as e:
        message = f"cannot read the directory: {e.strerror or e}"
        return (), (Problem(file=str(path), document=None, line=None, field="", message=message),)
    files: list[tuple[str, str]] = []
    problems: list[Problem] = []
    for name in names:
        if name.is_dir():
            continue
        try:
            data = name.read_bytes()
        except OSError as e:
            message = f"cannot read the file: {e.strerror or e}"
            problems.append(Problem(file=str(name), document=None, line=None, field="", message=message))
            continue
        text, bad = decode(str(name), data)
        problems.extend(bad)
        if not bad:
            files.append((str(name), text))
    return tuple(files), tuple(problems)
