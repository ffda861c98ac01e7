"""Every process of one attempt: found by parentage (this process is the subreaper) and by control group, never by name."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Container, Iterator

from . import processes
from .cgroup import Cgroup
from .processes import Identity

__all__ = ["Tree"]


class Tree:
    """The descendants of this process, and whoever is in the control group."""

    def __init__(self, cgroup: Cgroup | None) -> None:
        self._cgroup = cgroup

    def _pids(self, *, newborn: bool = True) -> Iterator[int]:
        """The group's members first: asking it costs nothing, while parentage means a walk over all of /proc.

        Not `newborn`: without those that came into the group since it was asked.
        """
        inside = self._cgroup.pids() if self._cgroup is not None else []
        yield from inside
        seen = set(inside)
        others = [pid for pid in processes.descendants(os.getpid()) if pid not in seen]
        if others and not newborn and self._cgroup is not None:
            seen.update(self._cgroup.pids())
        yield from (pid for pid in others if pid not in seen)

    def _each(self, *, newborn: bool = True) -> Iterator[Identity]:
        for pid in self._pids(newborn=newborn):
            who = processes.identity(pid)
            if who is not None:
                yield who

    def living(self) -> list[Identity]:
        """Who is there now, zombies not counted."""
        return sorted(self._each())

    def signal(self, number: int, *, only: Container[int] | None = None, but: Container[int] = ()) -> int:
        """Send a signal to everybody (or `only` some pids); a stopped process is woken so that it can hear it.

        Returns how many were told.  Whoever cannot be signalled (another user's) is left for `living` to name.
        """
        told = 0
        # A handler may save by starting a program: that one was not there when the stop came, and is not to hear of it.
        for who in self._each(newborn=number == signal.SIGKILL):
            if (only is not None and who.pid not in only) or who.pid in but:
                continue
            with contextlib.suppress(PermissionError):
                if processes.send(who, number):
                    told += 1
                    if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                        processes.send(who, signal.SIGCONT)
        return told

    def kill(self) -> int:
        """SIGKILL for everybody.  A fork in flight may escape one pass: the caller looks again until nobody is left."""
        if self._cgroup is not None:
            self._cgroup.kill()
        return self.signal(signal.SIGKILL)

    def outlived(self, member: int, belongs: Callable[[int], bool]) -> bool:
        """Whether anything of a member that has been reaped still lives."""
        return any(processes.session(who.pid) == member or belongs(who.pid) for who in self._each())

    def below(self, member: int, belongs: Callable[[int], bool]) -> set[int]:
        """The pids of one member: below it, in its session, or told by `belongs`."""
        mine = {member, *processes.descendants(member)}
        for pid in self._pids():
            if processes.session(pid) == member or belongs(pid):
                mine.add(pid)
        return mine
