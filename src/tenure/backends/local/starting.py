"""Starting the processes of an attempt: a gang all or none, a work list one by one."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable, Iterator
from typing import Any

from . import environment
from .cgroup import Cgroup
from .launch import READY, Failure, Plan, explain, spawn
from .layout import SCRIPT
from .output import Outputs
from .roster import Seat

__all__ = ["Member", "Starter", "unprepared"]


class Member:
    """A process that was forked by the supervisor.  `running` once its program was executed."""

    def __init__(self, seat: Seat, plan: Plan, pid: int, report: int) -> None:
        self.seat, self.plan, self.pid, self.report = seat, plan, pid, report
        self.told = b""
        self.running = False


class Starter:
    """Forks members and hears how their start went: `on_running` or `on_failure`, once each."""

    def __init__(
        self,
        spec: dict[str, Any],
        epoll: select.epoll,
        cgroup: Cgroup | None,
        *,
        on_running: Callable[[Member], None],
        on_failure: Callable[[Failure, Member | None], None],
    ) -> None:
        self._spec, self._job, self._epoll, self._cgroup = spec, spec["job"], epoll, cgroup
        self._on_running, self._on_failure = on_running, on_failure
        self._outputs = Outputs(spec)
        self._port = environment.free_port() if self._job["gang"] else None
        self._gate: tuple[int, int] | None = None
        self._awaited = 0
        self._reports: dict[int, Member] = {}
        self.members: dict[int, Member] = {}  # by pid, until reaped
        self.abandoned = False  # a stop came: a silent end of a report may now be a kill, not a start

    def launch(self, seats: list[Seat], *, together: bool) -> None:
        """Fork all seats; `together` holds every one of them at a gate until all are ready to become their program."""
        if together and len(seats) > 1:
            self._gate, self._awaited = os.pipe2(os.O_CLOEXEC), len(seats)
        for seat in seats:
            try:
                plan = self._plan(seat)
                pid, report = spawn(plan, gate=self._gate)
            except OSError as error:
                self._on_failure(unprepared(error), None)
                return
            except ValueError as error:  # a NUL in a name that became a path
                self._on_failure(Failure("InvalidCommand", f"cannot prepare the start: {error}", 126), None)
                return
            member = Member(seat, plan, pid, report)
            self.members[pid] = self._reports[report] = member
            self._epoll.register(report, select.EPOLLIN)

    def _plan(self, seat: Seat) -> Plan:
        argv = self._job["argv"]
        if self._job["script"] is not None:
            argv = [self._script(), *self._job["script_args"]]
        return Plan(
            seat.rank, argv, environment.of_process(self._spec, rank=seat.rank, slot=seat.slot, port=self._port),
            self._job["workdir"], self._outputs.path("stdout", seat.rank), self._outputs.path("stderr", seat.rank),
            self._cgroup,
        )  # fmt: skip

    def _script(self) -> str:
        path = os.path.join(self._spec["run_dir"], SCRIPT)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700)
        except FileExistsError:
            return path
        with os.fdopen(fd, "wb") as file:
            file.write(os.fsencode(self._job["script"]))
        return path

    def reports(self, fd: int) -> bool:
        """Is this descriptor one of ours?"""
        return fd in self._reports

    def hear(self, fd: int) -> None:
        """Read what a child reports: ready at the gate, why it failed, or (end of file) that it runs its program."""
        member = self._reports[fd]
        for data in _available(fd):
            member.told += data
            if not data:
                self._epoll.unregister(fd)
                os.close(fd)
                del self._reports[fd]
                self._settle(member)
            elif self._gate is not None and member.told == READY:
                self._awaited -= 1
                if self._awaited == 0:
                    self._open_gate()

    def _open_gate(self) -> None:
        assert self._gate is not None
        reader, writer = self._gate
        self._gate = None
        os.close(reader)
        os.close(writer)

    def _settle(self, member: Member) -> None:
        told = member.told.removeprefix(READY)
        if told or (self._gate is not None and member.told != READY):
            self._on_failure(explain(member.plan, told), member)
            return
        if self.abandoned:
            return
        member.running = True
        self._on_running(member)

    def reaped(self, pid: int) -> Member | None:
        """The member that had this pid, after hearing its last words; None for any other descendant."""
        member = self.members.pop(pid, None)
        if member is not None and member.report in self._reports and self._reports[member.report] is member:
            self.hear(member.report)
        return member

    def close(self) -> None:
        """Let go of what a start that was broken off has left open."""
        for fd in (*(self._gate or ()), *self._reports):
            os.close(fd)
        self._gate, self._reports = None, {}

    def unborn(self) -> set[int]:
        """Members that have not become their program: a polite signal would be lost on them."""
        return {pid for pid, member in self.members.items() if not member.running}


def _available(fd: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        yield data
        if not data:
            return


def unprepared(error: OSError) -> Failure:
    """What went wrong before there was a child."""
    why, file = os.strerror(error.errno or 0), error.filename
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failure("DiskFull", f"cannot write {file or 'the run directory'}: {why}", 126)
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return Failure("OutOfProcesses", f"the machine cannot start another process now: {why}", 126)
    return Failure("LogUnwritable", f"cannot write the output to {file!r}: {why}", 126)
