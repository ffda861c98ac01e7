"""Who of a run is there: every process with the run's directory in its environment, and everybody below one.

A snapshot: what is born or ends while it is taken may be missed.  Processes of others that may not be looked at are nobody's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .owners import DEAD, parse_environ

__all__ = ["Member", "members"]

LONGEST = 80  # characters of a command line: enough to know it by


@dataclass(frozen=True, slots=True, order=True)
class Member:
    pid: int
    command: str

    def __str__(self) -> str:
        return f"{self.command} (pid {self.pid})"


def members(run_dir: str, proc: Path = Path("/proc")) -> tuple[Member, ...]:
    """By pid.  Zombies are not counted: they hold nothing.  Costs two small reads for each process of the machine."""
    wanted = {run_dir, os.path.realpath(run_dir)}
    parents: dict[int, int] = {}
    marked: set[int] = set()
    for entry in os.listdir(proc):
        if not entry.isdecimal():
            continue
        try:
            stat = (proc / entry / "stat").read_bytes()  # its name may be any bytes
            state, parent = stat.rpartition(b")")[2].split()[:2]
            if state.decode() in DEAD:
                continue
            parents[int(entry)] = int(parent)
            known = parse_environ((proc / entry / "environ").read_bytes())
        except (OSError, ValueError):
            continue
        if known is not None and known[1] in wanted:
            marked.add(int(entry))
    found = sorted(pid for pid in parents if _below(pid, parents, marked))
    return tuple(Member(pid, _command(pid, proc)) for pid in found)


def _below(pid: int, parents: dict[int, int], marked: set[int]) -> bool:
    for _ in range(len(parents)):
        if pid in marked:
            return True
        if pid not in parents:
            return False
        pid = parents[pid]
    return False


def _command(pid: int, proc: Path) -> str:
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "a process"
    text = " ".join(word for word in words if word)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
