"""What the kernel says about processes, and signals that never reach a stranger.

A process is named by pid and start time (in clock ticks since boot); together with the boot id that is its identity.
Signals go through a pidfd that is checked after it was opened, so a pid that was reused in between is never hit.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from .reading import whole

__all__ = [
    "Identity",
    "ancestors",
    "become_subreaper",
    "boot_id",
    "command",
    "descendants",
    "die_with_parent",
    "environ_value",
    "everyone",
    "identity",
    "myself",
    "oom_kills",
    "send",
    "session",
    "signal_number",
    "start_ticks",
]  # fmt: skip

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


class Identity(NamedTuple):
    """One process of this boot."""

    pid: int
    started: int


def boot_id() -> str:
    """The name of this boot: no process survives a change of it."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def oom_kills() -> int:
    """How many processes of this machine the kernel has killed for want of memory since boot; 0 where it does not say."""
    try:
        text = whole("/proc/vmstat")
    except OSError:
        return 0
    _, found, rest = text.partition(b"\noom_kill ")
    return int(rest.split(None, 1)[0]) if found else 0


def become_subreaper() -> None:
    """Orphans among the descendants become children of this process instead of init's."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def die_with_parent() -> None:
    """This process is killed when its parent is.  Survives exec."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _stat(pid: int) -> list[bytes] | None:
    """Fields of /proc/PID/stat from the state on (the name before it may hold anything)."""
    try:
        return whole(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None


def identity(pid: int) -> Identity | None:
    """Who has this pid now; None for nobody and for the dead who are not yet reaped."""
    fields = _stat(pid)
    if fields is None or len(fields) < 20 or fields[0] in b"ZX":
        return None
    return Identity(pid, int(fields[19]))


def start_ticks(pid: int) -> int:
    """When a process was started, the unreaped dead included; 0 for nobody."""
    fields = _stat(pid)
    return int(fields[19]) if fields and len(fields) > 19 else 0


def myself() -> Identity:
    """This process."""
    return _found_once(os.getpid())


@lru_cache(maxsize=1)
def _found_once(pid: int) -> Identity:
    return Identity(pid, start_ticks(pid))


def session(pid: int) -> int:
    """The session id, or -1."""
    fields = _stat(pid)
    return int(fields[3]) if fields else -1


def command(pid: int) -> str:
    """The command line for people, at most 200 characters; the kernel's short name where there is none."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            raw = file.read(4096)
        if not raw:
            with open(f"/proc/{pid}/comm", "rb") as file:
                raw = file.read()
    except OSError:
        return "?"
    return raw.replace(b"\0", b" ").decode("utf-8", "replace").strip()[:200]


def environ_value(pid: int, name: str) -> str | None:
    """One variable of the environment that a process was started with; None if unset or not ours to read."""
    try:
        raw = whole(f"/proc/{pid}/environ")
    except OSError:
        return None
    prefix = os.fsencode(name) + b"="
    for entry in raw.split(b"\0"):
        if entry.startswith(prefix):
            return os.fsdecode(entry[len(prefix) :])
    return None


def everyone() -> Iterator[int]:
    """Every pid of the machine."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def ancestors(pid: int) -> set[int]:
    """A process and everybody above it."""
    found = {pid}
    while (fields := _stat(pid)) and (pid := int(fields[1])) > 0:
        found.add(pid)
    return found


def descendants(pid: int) -> list[int]:
    """Everybody below a process.  A fork that happens meanwhile may be missed: ask again until nobody is new."""
    below: dict[int, list[int]] = {}
    for other in everyone():
        fields = _stat(other)
        if fields:
            below.setdefault(int(fields[1]), []).append(other)
    found: list[int] = []
    stack = [pid]
    while stack:
        for child in below.pop(stack.pop(), ()):
            found.append(child)
            stack.append(child)
    return found


def send(who: Identity, number: int, still_ours: Callable[[int], bool] | None = None) -> bool:
    """Signal exactly this process.  False if it has gone (or is not ours any more).  Raises PermissionError."""
    try:
        fd = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return False
    try:
        if identity(who.pid) != who or (still_ours is not None and not still_ours(who.pid)):
            return False
        signal.pidfd_send_signal(fd, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)


def signal_number(name: str) -> int:
    """`TERM`, `SIGTERM` or `15`; TERM for what names no signal."""
    text = str(name).upper().removeprefix("SIG")
    if text.isdigit() and 0 < int(text) < signal.NSIG:
        return int(text)
    found: signal.Signals | None = signal.Signals.__members__.get("SIG" + text)
    return int(found or signal.SIGTERM)
