"""The supervisor: one small process per attempt.  It starts the attempt, stops it, waits for it, and writes down what was.

It promises, whatever happens to the daemon: an attempt starts at most once; its end is noticed at once and recorded with
exit code and time; nothing of its process tree outlives it unnamed; a stop is marked in the record before anybody is
signalled.  It waits in epoll and wakes for news only: children, requests, deadlines.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` wraps every number in an enum, at the cost of a start's all
import contextlib
import errno
import json
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Any

from . import processes
from .cgroup import Cgroup
from .chronicle import Chronicle
from .clock import Clock, end_of
from .journal import Journal
from .ladder import Ladder
from .launch import Failure
from .layout import CONTROL_SOCKET, JOURNAL, LOCK, NEWS_SOCKET, SPEC
from .locks import try_lock
from .reading import whole
from .requests import Requests
from .roster import Gang, Roster, WorkList
from .sockets import Mouth, bind_datagram
from .starting import Member, Starter, unprepared
from .tree import Tree
from .verdict import Exit, Verdict, decide

__all__ = ["Supervisor", "supervise"]

LEFTOVER_GRACE_S = 2.0  # for what a finished program left behind
PARTNER_GRACE_S = 10.0  # for the others of a gang that has lost a member


class Supervisor:
    """One attempt, from its spec to its last line.  `run` is the whole life."""

    def __init__(self, spec: dict[str, Any], journal: Journal, clock: Clock, *, boot: str) -> None:
        self.spec, self.job, self.run_dir = spec, spec["job"], str(spec["run_dir"])
        self.journal, self.clock = journal, clock
        self.cgroup = self._open(boot)
        self.record = Chronicle(self.run_dir)
        self.tree = Tree(self.cgroup)
        self.ladder = Ladder(self.tree, clock)
        self.roster = self._roster()
        self.failure: Failure | None = None  # to launch
        self.stops: list[dict[str, Any]] = []  # that took effect
        self.letting_go: list[tuple[float, Member]] = []  # members that a shrunk gang gives up, and when to kill them
        self.leaving: dict[int, Member] = {}  # the same by rank, until nothing is left of them
        self.limit: float | None = None  # when the time limit strikes, by the monotonic clock
        self.warning: float | None = None  # when its warning goes out
        self.epoll = select.epoll()
        self.starter = Starter(spec, self.epoll, self.cgroup, on_running=self._on_running, on_failure=self._on_failure)
        self.requests = Requests(self.run_dir)
        self.mouth = Mouth(os.path.join(spec["state_dir"], NEWS_SOCKET))
        self.oom_kills = processes.oom_kills()
        self.control: socket.socket | None = None
        self.told_to_end = False

    def _open(self, boot: str) -> Cgroup | None:
        status, me = os.stat(self.run_dir), processes.myself()
        cgroup = Cgroup.create(f"tenure-{status.st_ino:x}-{self.clock.elapsed():x}")
        self.journal.write(
            "opened", run_id=self.spec["run_id"], boot_id=boot, pid=me.pid, started=me.started,
            directory=[self.run_dir, status.st_dev, status.st_ino], cgroup=cgroup.path if cgroup else None,
        )  # fmt: skip
        return cgroup

    def _roster(self) -> Roster:
        seats = self.spec["processes"]
        if self.job["policy"] == "each":
            count = self.job["completions"] or len(seats)
            return WorkList(completions=count, parallelism=len(seats), backoff_limit=self.job["backoff_limit"])
        return Gang([seat["rank"] for seat in seats])

    def run(self) -> None:
        """Returns when the attempt has ended and everything about it is written down."""
        try:
            self._listen()
            self.record.open(self.spec)
        except OSError as error:
            self.failure = unprepared(error)
        if self.journal.full_disk:  # a start that is not written down might be made again
            self.failure = unprepared(OSError(errno.ENOSPC, "", self.run_dir))
        self._obey()
        if not self.stops and self.failure is None:
            self.starter.launch(self.roster.first(), together=self.roster.kind == "gang")
        while not self._everybody_left():
            self._wait()
        self._close()

    def _listen(self) -> None:
        processes.become_subreaper()
        self.wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.signal(_signal.SIGTERM, self._on_term)
        for number in (_signal.SIGINT, _signal.SIGHUP, _signal.SIGPIPE):
            _signal.signal(number, _signal.SIG_IGN)
        self.epoll.register(self.wake, select.EPOLLIN)
        self.control = bind_datagram(os.path.join(self.run_dir, CONTROL_SOCKET))
        self.epoll.register(self.control.fileno(), select.EPOLLIN)

    def _on_term(self, *_: object) -> None:
        self.told_to_end = True

    def _wait(self) -> None:
        datagrams: list[bytes] = []
        for fd, _ in self.epoll.poll(self._timeout()):
            if fd == self.wake:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake, 4096)
            elif self.control is not None and fd == self.control.fileno():
                datagrams += _drain(self.control)
            elif self.starter.reports(fd):
                self.starter.hear(fd)
        self._everybody_left()  # first: whoever left before a request was read has left by itself
        self._obey(datagrams)
        self._keep_time()

    def _timeout(self) -> float | None:
        moments = [self.ladder.due, self.limit, self.warning, *(at for at, _ in self.letting_go)]
        due = min((at for at in moments if at is not None), default=None)
        return None if due is None else max(0.0, due - self.clock.monotonic())

    # -- starting ---------------------------------------------------------------------------------------------------

    def _on_running(self, member: Member) -> None:
        pid = member.pid
        self.journal.write("member", rank=member.seat.rank, pid=pid, started=processes.start_ticks(pid))
        begun = self.journal.facts.known.get("started_at") is not None
        if begun or self.failure is not None or self.starter.unborn():
            return
        self.journal.write("started", live=self.roster.live)
        if self.job["time_limit_s"] is not None:
            self.limit = self.clock.monotonic() + self.job["time_limit_s"]
            if self.job["stop_signal"]:
                self.warning = self.limit - self.job["stop_signal"]["before_s"]
        self._tell()

    def _on_failure(self, failure: Failure, member: Member | None) -> None:
        """Before the start: the whole attempt.  After it (a work list), only where there was no process at all."""
        if self.failure is None and (member is None or not self._begun()):
            self.failure = failure
            self.ladder.kill()

    def _begun(self) -> bool:
        return self.journal.facts.known.get("started_at") is not None

    # -- leaving ----------------------------------------------------------------------------------------------------

    def _everybody_left(self) -> bool:
        """Reap whoever can be reaped.  True when no descendant is left: every orphan becomes a child of ours."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                break
            member = self.starter.reaped(pid)
            if member is not None and (member.running or self._begun()):
                self._on_exit(member, status)
        if not self.starter.members and not self.stops and self.failure is None and self.ladder.due is None:
            self.ladder.begin(signal.SIGTERM, LEFTOVER_GRACE_S)  # the program has ended, what it left behind has to
        self._see_off()
        return False

    def _on_exit(self, member: Member, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        exit_ = Exit(member.seat.rank, code if code >= 0 else 128 - code, -code if code < 0 else None)
        self.journal.write("exited", rank=exit_.rank, pid=member.pid, exit_code=exit_.code, signal=exit_.signal)
        broken = self.roster.failure is not None
        more = self.roster.exited(exit_, told=bool(self.stops))
        if self.stops or self.failure is not None:
            return
        if self.roster.failure is not None:
            if not broken and self.starter.members:
                self.ladder.begin(signal.SIGTERM, min(PARTNER_GRACE_S, self.job["grace_s"]))
        elif more:
            self.starter.launch(more, together=False)
        else:
            self._say_places()

    def _say_places(self) -> None:
        if self._begun() and self.roster.live not in (0, self.journal.facts.known["processes"]):
            self.journal.write("live", live=self.roster.live)
            self._tell()

    # -- stopping ---------------------------------------------------------------------------------------------------

    def _obey(self, datagrams: list[bytes] | None = None) -> None:
        for request in self.requests.read(datagrams or []):
            if request["kind"] == "stop":
                self._stop(request)
            elif request["kind"] == "shrink":
                self._shrink(request)
            elif request["kind"] == "code-changed":
                self._code_changed(str(request["changed"]))
        if self.told_to_end:
            self.told_to_end = False
            self._stop(
                {"stop": "shutdown", "reason": "PlatformStopped", "message": "the supervisor was told to end", "by": "SIGTERM",
                 "grace_s": self.job["grace_s"], "signal": "TERM"}
            )  # fmt: skip

    def _code_changed(self, changed: str) -> None:
        self.record.say(lambda record: record.line("code_changed", changed=changed))
        self.journal.write("code-changed", changed=changed)
        self._tell()
        self.journal.facts.known["details"].pop("code_changed")  # told once; who reads the files finds it there

    def _is_over(self) -> bool:
        """Has the attempt ended by itself, whatever still lingers?"""
        if self.stops:
            return False
        return (
            self.failure is not None or self.roster.failure is not None or (self._begun() and not self.starter.members)
        )

    def _stop(self, stop: dict[str, Any]) -> None:
        mark = {name: stop.get(name, "") for name in ("stop", "reason", "message", "by", "grace_s", "signal")}
        if self._is_over():
            self.journal.write("late-stop", **mark)
            self.ladder.begin(signal.SIGTERM, float(mark["grace_s"]))
            return
        if all(mark["stop"] != earlier["stop"] for earlier in self.stops):  # a kind is marked once
            self.record.say(
                lambda record: record.stop_requested(
                    mark["stop"], mark["reason"], message=mark["message"], by=mark["by"] or None
                )
            )
        self.journal.write("stop", **mark)
        self.stops.append(mark)
        self.starter.abandoned = True
        self.tree.signal(signal.SIGKILL, only=self.starter.unborn())
        self.ladder.begin(processes.signal_number(mark["signal"]), float(mark["grace_s"]))
        self._tell()

    def _shrink(self, request: dict[str, Any]) -> None:
        ranks = self.roster.shrink(int(request["count"]))
        for member in [m for m in self.starter.members.values() if m.seat.rank in ranks]:
            self.tree.signal(processes.signal_number(request["signal"]), only=self._belongings(member))
            self.letting_go.append((self.clock.monotonic() + float(request["grace_s"]), member))
            self.leaving[member.seat.rank] = member
        if ranks:
            self.journal.write("let-go", ranks=ranks, reason=request.get("reason", ""))
        self._say_places()  # ranks that had ended before leave at once

    def _see_off(self) -> None:
        """A rank that was let go gives its place back when its last process has left, not when it is asked to."""
        for rank, member in list(self.leaving.items()):
            if member.pid in self.starter.members or self.tree.outlived(member.pid, _is_of(rank)):
                continue
            del self.leaving[rank]
            self.letting_go = [entry for entry in self.letting_go if entry[1] is not member]
            self.roster.left(rank)
            if not self.stops and self.failure is None:
                self._say_places()

    def _belongings(self, member: Member) -> set[int]:
        return self.tree.below(member.pid, _is_of(member.seat.rank))

    def _keep_time(self) -> None:
        now = self.clock.monotonic()
        if self.warning is not None and now >= self.warning:
            self.warning = None
            self._warn()
        if self.limit is not None and now >= self.limit:
            self.limit = None
            if not self.stops:
                self._stop(
                    {"stop": "time-limit", "reason": "TimeLimit", "message": f"ran into its time limit of {self.job['time_limit_s']:g} s",
                     "grace_s": self.job["grace_s"], "signal": "TERM", "by": "supervisor"}
                )  # fmt: skip
        for entry in [entry for entry in self.letting_go if now >= entry[0]]:
            self.letting_go.remove(entry)
            self.tree.signal(signal.SIGKILL, only=self._belongings(entry[1]))
        if self.ladder.due is not None and self.ladder.step():
            self.journal.write("survivors", survivors=self.ladder.survivors)
            self._tell()

    def _warn(self) -> None:
        """`--signal=[B:]SIG@SECONDS`: to the script alone, or to everything but the script, as Slurm does."""
        asked, mains = self.job["stop_signal"], set(self.starter.members)
        number = processes.signal_number(asked["signal"])
        if asked["batch_only"]:
            told = self.tree.signal(number, only=mains)
        else:
            told = self.tree.signal(number, but=mains if self.job["sbatch"] else ())
        self.journal.write("warned", signal=number, told=told)

    # -- the end ----------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        facts, wall, elapsed = self.journal.facts, self.clock.wall(), self.clock.elapsed()
        started = facts.known.get("started_at")
        verdict = self._verdict()
        never = self.failure is not None and started is None and not self.stops
        ended = wall if started is None else end_of(
            started_wall=started, started_elapsed=facts.started_elapsed, wall=wall, elapsed=elapsed
        )  # fmt: skip
        self.record.in_trouble |= self.journal.full_disk
        message = verdict.message + self.record.disk_trouble()
        self.record.say(
            lambda record: record.closed(
                verdict.outcome,
                exit_code=verdict.exit_code,
                signal=verdict.signal,
                reason=verdict.reason,
                message=message,
            )
        )
        self.journal.write(
            "ended", state="launch-failed" if never else "ended",
            outcome=verdict.outcome, exit_code=verdict.exit_code, signal=verdict.signal, reason=verdict.reason, message=message,
            failed_rank=verdict.failed_rank, ended_at=ended,
            elapsed_us=elapsed - facts.started_elapsed if started is not None else 0,
        )  # fmt: skip
        self._tell()
        self._tidy()

    def _verdict(self) -> Verdict:
        if self.failure is not None and not self.stops:
            return Verdict("failed", self.failure.exit_code, None, self.failure.code, self.failure.message)
        verdict = decide(
            main=self.roster.main, failure=self.roster.failure, stops=self.stops, closed=self.record.own_words(),
            size=self.roster.size, kind=self.roster.kind, time_limit_s=self.job["time_limit_s"],
        )  # fmt: skip
        if verdict.outcome == "failed" and verdict.signal == signal.SIGKILL and processes.oom_kills() > self.oom_kills:
            return verdict._replace(reason="OutOfMemory", message=f"{verdict.message}; the kernel was short of memory")
        return verdict

    def _tell(self) -> None:
        """News for the daemon.  Where nobody listens the files are the truth."""
        news = json.dumps({"run_id": self.spec["run_id"], **self.journal.facts.known})
        self.mouth.say(news.encode())

    def _hear_the_last(self) -> None:
        """An edit that was found while the end was written down: whoever told us of it does not tell anybody else.

        Nobody reaches us once the socket's name is gone, and what came before that is in the socket.
        """
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.run_dir, CONTROL_SOCKET))
        if self.control is not None:
            for request in self.requests.read(_drain(self.control)):
                if request["kind"] == "code-changed":
                    self._code_changed(str(request["changed"]))

    def _tidy(self) -> None:
        if self.cgroup is not None:
            self.cgroup.remove()
        self._hear_the_last()
        self.record.close()
        self.journal.close()
        self.starter.close()
        self.mouth.close()
        self.epoll.close()
        if self.control is not None:
            self.control.close()
        signal.set_wakeup_fd(-1)
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        for fd in (self.wake, self._waker):
            os.close(fd)


def _is_of(rank: int) -> Callable[[int], bool]:
    """Whether a process says in its environment that it is of that rank."""
    said = str(rank)
    return lambda pid: processes.environ_value(pid, "RANK") == said


def _drain(sock: socket.socket) -> list[bytes]:
    found = []
    while True:
        try:
            found.append(sock.recv(65536))
        except BlockingIOError:
            return found


def supervise(run_dir: str, *, state_dir: str, boot: str, clock: Clock | None = None) -> bool:
    """Be the supervisor of the attempt in `run_dir`.  False where it has (or had) one already: nothing is touched.

    Leaves nothing open behind, so that one process may serve one attempt after the other.
    """
    lock = try_lock(os.path.join(run_dir, LOCK))
    if lock is None:
        return False
    try:
        clock = clock or Clock()
        journal = Journal(os.path.join(run_dir, JOURNAL), clock)
        if journal.facts.known["state"] != "absent":
            journal.close()
            return False
        spec = json.loads(whole(os.path.join(run_dir, SPEC)).decode("utf-8", "surrogateescape"))
        spec.update(run_dir=run_dir, state_dir=state_dir)
        Supervisor(spec, journal, clock, boot=boot).run()
        return True
    finally:
        os.close(lock)
