"""A control group (v2) per attempt, where the machine lets us make one: nothing escapes it, and it can be killed at once.

Without one everything still works, by subreaper and parentage; the group is a second net, never the only one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from functools import lru_cache

__all__ = ["Cgroup"]

_CLONE3, _INTO_CGROUP = 435, 0x200000000  # the call has one number on every architecture; linux/sched.h
_python = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock, as os.fork does
_python.syscall.restype = ctypes.c_long


class _CloneArgs(ctypes.Structure):
    """`struct clone_args` of clone3(2), up to and with `cgroup`."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls", "set_tid", "set_tid_size", "cgroup")]  # fmt: skip


@lru_cache(maxsize=1)
def _root() -> str | None:
    """The directory of our own group in the v2 hierarchy.  Looked up once, and again when it has gone."""
    own = None
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            for line in file:
                if line.startswith("0::"):
                    own = line.rstrip("\n")[3:]
    except OSError:
        return None
    if own is None:
        return None
    for mount in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        path = mount + own.rstrip("/")
        if os.path.exists(os.path.join(path, "cgroup.procs")) and os.path.exists(os.path.join(mount, "cgroup.procs")):
            return path
    return None


class Cgroup:
    """One attempt's group.  `path` is what the journal remembers."""

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def create(cls, name: str) -> Cgroup | None:
        """A new group, or None where this machine or user cannot have one."""
        root = _root()
        if root is None:
            return None
        path = os.path.join(root, name)
        try:
            os.mkdir(path)
        except OSError:
            _root.cache_clear()  # somebody may have moved us since
            return None
        return cls(path)

    def join(self) -> None:
        """Move the calling process in.  Raises OSError."""
        fd = os.open(os.path.join(self.path, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"0")
        finally:
            os.close(fd)

    def fork(self) -> int:
        """As `os.fork`, with the child in the group from its first instant.  Raises OSError where the kernel cannot.

        `join` waits until every processor has passed through the kernel, 10 to 30 ms; this does not.  Only for a process
        with one thread, and a child that soon becomes another program: nobody is told of the fork, neither the C library
        nor the interpreter, and nobody is asked to prepare for it.
        """
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            arguments = _CloneArgs(flags=_INTO_CGROUP, exit_signal=signal.SIGCHLD, cgroup=fd)
            size = ctypes.sizeof(arguments)
            pid = int(_python.syscall(ctypes.c_long(_CLONE3), ctypes.byref(arguments), ctypes.c_size_t(size)))
            if pid == 0:
                return 0
            failed = ctypes.get_errno()
        finally:
            os.close(fd)
        if pid < 0:
            raise OSError(failed, os.strerror(failed), self.path)
        return pid

    def _groups(self) -> Iterator[str]:
        for directory, _, _ in os.walk(self.path):
            yield directory

    def pids(self) -> list[int]:
        """Everybody inside, subgroups included (a job may make its own)."""
        found: list[int] = []
        for directory in self._groups():
            with contextlib.suppress(OSError), open(os.path.join(directory, "cgroup.procs"), "rb") as file:
                found.extend(int(line) for line in file.read().split())
        return [pid for pid in found if pid > 0]

    def kill(self) -> bool:
        """SIGKILL everybody inside, forks in flight included.  False where the kernel has no cgroup.kill."""
        try:
            fd = os.open(os.path.join(self.path, "cgroup.kill"), os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            os.write(fd, b"1")
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def remove(self) -> None:
        """Remove the empty group and its subgroups.  One that is not empty stays."""
        with contextlib.suppress(OSError):
            os.rmdir(self.path)
            return
        for directory in reversed(list(self._groups())):
            with contextlib.suppress(OSError):
                os.rmdir(directory)
