"""Whether a notebook server is in use: its kernels, its terminals, and what their processes do to processor and card.

What counts is change between two looks, on a steady clock; so a wall clock that jumps makes nobody look idle.  A kernel
that runs a cell is in use however long it says nothing.  A page that is open, or asks every few seconds, is not.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

__all__ = ["Idleness", "card_in_use", "descendants", "processor_seconds"]

BUSY_SHARE = 0.05  # of one core, over all processes below the server: an idle kernel needs a tenth of it
RUNNING = frozenset({"busy", "starting", "restarting", "autorestarting"})


class Idleness:
    """Fed by `look`; `seconds` is for how long nothing has happened."""

    def __init__(
        self,
        server: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        card: Callable[[Sequence[int]], bool] | None = None,
    ) -> None:
        self._server, self._clock, self._card = server, clock, card or card_in_use
        self._since = self._looked = clock()
        self._seen: object = None
        self._spent: dict[int, float] = {}

    @property
    def seconds(self) -> float:
        return self._clock() - self._since

    def look(self, kernels: Sequence[Mapping[str, object]], terminals: Sequence[Mapping[str, object]]) -> str:
        """What is in use, for people; empty where nothing is."""
        now = self._clock()
        seen = (
            sorted((str(k.get("id")), str(k.get("last_activity"))) for k in kernels),
            sorted((str(t.get("name")), str(t.get("last_activity"))) for t in terminals),
        )
        below = descendants(self._server)
        spent = {pid: processor_seconds(pid) for pid in below}
        # What a process had used before it was first seen was not used since the last look.
        used = sum(max(0.0, spent[pid] - self._spent.get(pid, spent[pid])) for pid in spent)
        elapsed = max(now - self._looked, 1e-3)
        running = [k for k in kernels if str(k.get("execution_state")) in RUNNING]
        what = ""
        if running:
            what = f"{len(running)} kernel{'s' if len(running) > 1 else ''} running"
        elif self._seen is not None and seen != self._seen:
            what = "somebody works in a kernel or a terminal"
        elif used / elapsed > BUSY_SHARE:
            what = "its processes compute"
        elif below and self._card(below):
            what = "its processes use the card"
        if what:
            self._since = now
        self._looked, self._seen, self._spent = now, seen, spent
        return what


def descendants(pid: int) -> list[int]:
    """Every process below this one, not itself."""
    below: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            fields = _stat(int(entry))
            if fields:
                below.setdefault(int(fields[1]), []).append(int(entry))
    found: list[int] = []
    ahead = list(below.get(pid, ()))
    while ahead:
        one = ahead.pop()
        found.append(one)
        ahead += below.get(one, ())
    return found


def processor_seconds(pid: int) -> float:
    """Of user and system; 0 for a process that is gone."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name: state, parent, …"""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def card_in_use(pids: Sequence[int]) -> bool:
    """Whether one of these processes has had a kernel on a card lately, by `nvidia-smi pmon`; False where nobody can say."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "pmon", "-c", "1", "-s", "u"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return False
    ours = {str(pid) for pid in pids}
    for line in said.splitlines():
        fields = line.split()  # gpu, pid, type, sm in percent or `-`, …
        if len(fields) > 3 and fields[1] in ours and fields[3].isdecimal() and int(fields[3]) > 0:
            return True
    return False
