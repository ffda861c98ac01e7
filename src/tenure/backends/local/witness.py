"""Does an attempt run the code that was submitted?  A look at its working tree shortly after the start, beside the job.

The forkserver forks one witness for all attempts that started within a moment, and each tree is read once: a thousand
short jobs of one directory cost a few looks, not a thousand, and no supervisor waits for git.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from .clock import Clock
from .facts import fold
from .journal import Journal, read_lines
from .layout import JOURNAL, NEWS_SOCKET, SPEC
from .requests import ask
from .sockets import send_datagram

__all__ = ["difference", "has_code", "look_at"]

# What an untracked file must look like to be code: the others are what jobs write where they run.
_CODE = (
    ".py", ".pyx", ".ipynb", ".sh", ".bash", ".sbatch", ".slurm", ".yaml", ".yml", ".toml", ".json", ".cfg", ".ini", ".c", ".cc",
    ".cpp", ".cu", ".cuh", ".h", ".hpp", ".rs", ".go", ".jl", ".r", ".R", ".js", ".ts", ".lua",
)  # fmt: skip


def has_code(fingerprint: Mapping[str, Any]) -> bool:
    """Is there anything to compare with?"""
    return fingerprint.get("kind") == "git" or bool(fingerprint.get("files"))


def _code_alone(value: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a fingerprint that only an edit changes: not what jobs have written into the tree meanwhile.

    Of untracked files that are code those count which `known` has too.
    """
    kept = {name: value.get(name) for name in ("kind", "commit", "diff_sha256", "changed", "files") if name in value}
    untracked = value.get("untracked")
    before = known.get("untracked")
    if isinstance(untracked, Mapping) and isinstance(before, Mapping):
        mine, theirs = _hashes(untracked), _hashes(before)
        kept["untracked"] = {
            "files": {name: mine[name] for name in sorted(mine) if name in theirs and name.endswith(_CODE)}
        }
    kept["digest"] = json.dumps(kept, sort_keys=True, default=str)
    return kept


def _hashes(untracked: Mapping[str, Any]) -> Mapping[str, Any]:
    files = untracked.get("files", untracked)
    return files if isinstance(files, Mapping) else {}


def difference(submitted: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """One sentence, or `""` for the same code.  What could not be read is not called different."""
    from tenure.sdk.fingerprint import explain_difference

    if submitted.get("error") or now.get("error"):
        return ""
    return explain_difference(_code_alone(submitted, submitted), _code_alone(now, submitted))


def look_at(run_dirs: Sequence[str], *, state_dir: str) -> None:
    """Compare each attempt's working tree with what was submitted; tell supervisors (or the files) of differences."""
    from tenure.sdk.fingerprint import fingerprint

    taken: dict[tuple[str, str], dict[str, object]] = {}
    for run_dir in run_dirs:
        with contextlib.suppress(OSError, ValueError, KeyError):
            with open(os.path.join(run_dir, SPEC), encoding="utf-8", errors="surrogateescape") as file:
                job = json.load(file)["job"]
            submitted, workdir = job["fingerprint"], job["workdir"] or "/"
            named = sorted(submitted.get("files") or ())
            key = (workdir, "\0".join(named))
            if key not in taken:
                taken[key] = fingerprint(workdir, named)
            changed = difference(submitted, taken[key])
            if changed:
                _tell(run_dir, changed, state_dir)


def _tell(run_dir: str, changed: str, state_dir: str) -> None:
    if ask(run_dir, {"kind": "code-changed", "changed": changed}):
        return
    if not fold(read_lines(os.path.join(run_dir, JOURNAL))).ended:
        return  # a supervisor will find the request
    journal = Journal(os.path.join(run_dir, JOURNAL), Clock())
    journal.write("code-changed", changed=changed)
    send_datagram(os.path.join(state_dir, NEWS_SOCKET), json.dumps(journal.facts.known).encode())
    journal.close()
