"""LocalBackend: the daemon's hands on this machine.

It asks for supervisors and listens to them; it decides nothing about an attempt and knows nothing that is not in the run
directory.  So it may be killed at any moment: its successor finds every attempt by its lock and its files.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenure.domain.attempt import AttemptSpec, AttemptState, Health, Listener, Observation, Stop
from tenure.domain.errors import LaunchError, Unavailable
from tenure.domain.ids import Instant, RunId

from . import processes, wire
from .checkpoints import NAME as CHECKPOINTS
from .checkpoints import open_checkpoints
from .clock import Clock
from .layout import NEWS_SOCKET, SPEC
from .nursery import Nursery
from .requests import ask
from .shims import write_shims
from .sockets import bind_datagram
from .successor import Census, succeed, survivors_of
from .truth import look
from .witness import has_code

__all__ = ["LocalBackend"]

_SETTLED = frozenset({AttemptState.ENDED, AttemptState.LAUNCH_FAILED})


class LocalBackend:
    """Attempts as processes under supervisors.  `state_dir` holds its sockets; `boot_id` is this machine's unless given.

    All methods may be called from any thread.  News comes from one thread of its own.
    """

    name = "local"

    def __init__(self, state_dir: Path, *, boot_id: str | None = None) -> None:
        self._state_dir = Path(state_dir).absolute()
        self._boot = boot_id or processes.boot_id()
        self._lock = threading.RLock()
        self._nursery_lock = threading.Lock()
        self._watched: dict[RunId, str] = {}  # run directories of attempts whose end has not been heard
        # orders that the present forkserver has not reported as done: it tells when such a supervisor leaves
        self._ours: Counter[RunId] = Counter()
        self._adopted: dict[int, RunId] = {}  # pidfds of the supervisors that are not
        self._asked: set[RunId] = set()  # starts that were asked for, and no news yet
        self._asked_again: set[RunId] = set()  # because the forkserver died before they had begun
        self._told: dict[RunId, AttemptState] = {}  # the last state that the listener heard of a watched attempt
        self._later: deque[Observation] = deque()  # news that another thread found, for the listening one to tell
        self._nursery: Nursery | None = None
        self._listener: Listener | None = None
        self._thread: threading.Thread | None = None
        self._closing = True  # so it is before `open`, too
        self._wake_writer = -1

    # -- life -------------------------------------------------------------------------------------------------------

    def open(self, listener: Listener) -> None:
        """Begin to listen.  Raises Unavailable where the state directory cannot be used or nothing can be forked."""
        try:
            self._state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_shims(self._state_dir)
            self._news = bind_datagram(str(self._state_dir / NEWS_SOCKET))
        except OSError as error:
            raise Unavailable(f"cannot use {self._state_dir}: {error.strerror or error}") from error
        with contextlib.suppress(OSError):
            self._news.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        self._listener = listener
        self._nursery = Nursery(self._state_dir, self._boot)
        self._epoll = select.epoll()
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for fd in (self._news.fileno(), self._nursery.socket.fileno(), self._wake_reader):
            self._epoll.register(fd, select.EPOLLIN)
        self._closing = False
        self._thread = threading.Thread(target=self._listen, name="local-backend", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening.  Running attempts go on; a later `open` (of another process too) finds them."""
        if self._thread is None:
            return
        self._closing = True
        self._wake()
        self._thread.join(timeout=10)
        self._thread = None
        if self._nursery is not None:
            self._nursery.close()
        self._news.close()
        with contextlib.suppress(OSError):
            os.unlink(self._state_dir / NEWS_SOCKET)
        with self._lock:
            for fd in (*self._adopted, self._wake_reader, self._wake_writer):
                os.close(fd)
            self._adopted.clear()
            self._epoll.close()
            self._wake_writer = -1

    # -- the protocol -----------------------------------------------------------------------------------------------

    def start(self, attempt: AttemptSpec) -> None:
        """See Backend.  LaunchError codes: DiskFull, RunDirUnusable."""
        run_dir = Path(attempt.run_dir)
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            same_job = attempt.retry_of is not None and attempt.retry_of.rpartition(".")[0] == attempt.job_id
            open_checkpoints(run_dir, attempt.checkpoints_of, same_job=same_job)
            wire.write_spec(run_dir, attempt)
        except OSError as error:
            _leave_nothing(run_dir)
            code = "DiskFull" if error.errno in (28, 122) else "RunDirUnusable"
            raise LaunchError(f"cannot write {run_dir}: {error.strerror or error}", code=code, exit_code=126) from error
        with self._lock:
            self._watched[attempt.run_id] = attempt.run_dir
            self._asked.add(attempt.run_id)
        self._order("supervise", attempt.run_id, attempt.run_dir, check=has_code(attempt.job.fingerprint))

    def observe(self, attempts: Sequence[tuple[RunId, str]]) -> Mapping[RunId, Observation]:
        """See Backend.  What still runs is adopted.

        What was lost is brought to its end at once where nobody is left; else it is `stopping`, with its survivors named,
        and the end follows as news: a share is not free while somebody uses it.
        """
        census = Census()
        return {run: self._observe(run, run_dir, census) for run, run_dir in attempts}

    def stop(self, run: RunId, run_dir: str, stop: Stop) -> None:
        """See Backend.  Raises Unavailable where the request can neither be written down nor be heard."""
        self._ask(run, run_dir, {"kind": "stop", **wire.stop(stop)})

    def shrink(self, run: RunId, run_dir: str, count: int, stop: Stop) -> None:
        """See Backend."""
        self._ask(run, run_dir, {"kind": "shrink", "count": count, **wire.stop(stop)})

    def probe(self) -> Health:
        """Can a supervisor be forked, and its files be written?"""
        nursery = self._nursery
        if nursery is None or self._thread is None:
            return Health(ok=False, message="the local backend is not open")
        if not nursery.alive():
            return Health(ok=False, message="the forkserver has died; it is started again with the next attempt")
        if not os.access(self._state_dir, os.W_OK):
            return Health(ok=False, message=f"{self._state_dir} cannot be written")
        return Health(
            ok=True, details={"forkserver_pid": nursery.pid, "boot_id": self._boot, "watched": len(self._watched)}
        )

    # -- asking -----------------------------------------------------------------------------------------------------

    def _order(self, what: str, run: RunId, run_dir: str, *, check: bool = False) -> None:
        """Never with `_lock` held: the forkserver may be waiting for our listening thread."""
        for last_try in (False, True):
            nursery = self._nursery
            if nursery is None:
                raise Unavailable("the local backend is not open")
            try:
                with self._lock:
                    self._ours[run] += 1
                nursery.order(what, run, run_dir, check=check)
                return
            except OSError as error:
                if last_try:
                    raise Unavailable(f"the forkserver does not answer: {error}") from error
                self._replace_nursery(nursery)

    def _ask(self, run: RunId, run_dir: str, request: dict[str, Any]) -> None:
        if not os.path.isdir(run_dir):
            return
        try:
            if look(run_dir)[0].ended:
                return
            heard = ask(run_dir, request)
        except OSError as error:
            raise Unavailable(f"cannot reach the supervisor of {run}: {error.strerror or error}") from error
        if not heard:
            seen = self._observe(run, run_dir, Census())
            if seen.state in _SETTLED:
                self._tell_later(seen)

    def _observe(self, run: RunId, run_dir: str, census: Census) -> Observation:
        try:
            facts, watched = look(run_dir)
            known = facts.known
            boot = facts.opened.get("boot_id")
            if facts.ended:
                self._forget(run)
                return wire.observation(run, known, boot=boot)
            if watched:
                self._adopt(run, run_dir, facts.opened)
                return wire.observation(
                    run, {**known, "state": "starting"} if known["state"] == "absent" else known, boot=boot
                )
            if known["state"] == "absent":
                return self._never_started(run)
            alive = survivors_of(facts, run_dir, boot=self._boot, census=census)
            if not alive and succeed(run_dir, state_dir=str(self._state_dir), boot=self._boot):
                self._forget(run)
                return wire.observation(run, look(run_dir)[0].known, boot=boot)
            with self._lock:
                self._watched[run] = run_dir
            # Named before they are ended: who hears its signal at once would have no command line any more.
            named = [{"pid": w.pid, "started": w.started, "command": processes.command(w.pid)} for w in alive]
            self._order("succeed", run, run_dir)
        except OSError as error:
            return self._unknown(run, f"cannot read {run_dir}: {error.strerror or error}")
        return wire.observation(
            run, {**known, "state": "stopping", "survivors": named, "reason": "SupervisorLost"}, boot=boot
        )

    def _never_started(self, run: RunId) -> Observation:
        state = AttemptState.STARTING if run in self._asked else AttemptState.ABSENT
        return Observation(run_id=run, state=state, at=Instant(Clock().wall()))

    def _unknown(self, run: RunId, message: str) -> Observation:
        return Observation(
            run_id=run, state=AttemptState.UNKNOWN, at=Instant(Clock().wall()), reason="Unreadable", message=message
        )

    def _forget(self, run: RunId) -> None:
        with self._lock:
            self._watched.pop(run, None)
            self._told.pop(run, None)
            self._asked.discard(run)

    def _adopt(self, run: RunId, run_dir: str, opened: Mapping[str, Any]) -> None:
        """Watch a supervisor that is no child of our forkserver: its end must be noticed all the same."""
        with self._lock:
            self._watched[run] = run_dir
            if self._closing or self._ours[run] > 0 or run in self._adopted.values() or not opened:
                return
            pid = int(opened["pid"])
            with contextlib.suppress(OSError):
                fd = os.pidfd_open(pid)
                if processes.start_ticks(pid) != opened["started"]:
                    os.close(fd)
                    return
                self._adopted[fd] = run
                self._epoll.register(fd, select.EPOLLIN)

    # -- listening --------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        while not self._closing:
            for fd, _ in self._epoll.poll():
                if self._closing:
                    return
                try:
                    self._hear(fd)
                except Exception as error:  # a listener's fault must not make the daemon deaf
                    sys.excepthook(type(error), error, error.__traceback__)

    def _hear(self, fd: int) -> None:
        if fd == self._news.fileno():
            self._hear_news()
        elif fd == self._wake_reader:
            with contextlib.suppress(BlockingIOError):
                os.read(fd, 4096)
            while self._later:
                self._notice(self._later.popleft())
        elif fd in self._adopted:
            with self._lock:
                run = self._adopted.pop(fd)
                self._epoll.unregister(fd)
                os.close(fd)
            self._on_left(run)
        elif (nursery := self._nursery) is not None and fd == nursery.socket.fileno():
            message = nursery.hear()
            if message is None:
                self._replace_nursery(nursery)
            else:
                with self._lock:
                    run = RunId(message["left"])
                    self._ours[run] -= 1
                    last = self._ours[run] <= 0
                    if last:
                        del self._ours[run]
                self._on_left(run, last=last)

    def _hear_news(self) -> None:
        while (data := _receive(self._news)) is not None:
            self._on_news(json.loads(data))

    def _on_news(self, news: Mapping[str, Any]) -> None:
        run = RunId(news["run_id"])
        if news["state"] == "trouble":
            with self._lock:
                watched = self._watched.get(run)
            if watched is not None and look(watched)[0].known["state"] == "absent":
                self._notice(_launch_failed(run, str(news["reason"]), str(news["message"])))
            return
        self._notice(wire.observation(run, news))

    def _on_left(self, run: RunId, *, last: bool = True) -> None:
        """A supervisor is gone.  Where its last news did not reach us, the files have it."""
        self._hear_news()  # what it said before it left comes first
        with self._lock:
            run_dir = self._watched.get(run)
            if last:
                self._asked.discard(run)
        if run_dir is None:
            return
        seen = self._observe(run, run_dir, Census())
        if seen.state is AttemptState.ABSENT:
            seen = _launch_failed(
                run, "SupervisorFailed", "the supervisor could not begin; its last words are in forkserver.log"
            )
        if seen.state is not self._told.get(run):  # else a second start has left, having found the first at work
            self._notice(seen)

    def _notice(self, seen: Observation) -> None:
        with self._lock:
            self._asked.discard(seen.run_id)
            self._asked_again.discard(seen.run_id)
            if seen.state in _SETTLED:
                self._watched.pop(seen.run_id, None)
                self._told.pop(seen.run_id, None)
            else:
                self._told[seen.run_id] = seen.state
        if self._listener is not None:
            self._listener(seen)

    def _tell_later(self, seen: Observation) -> None:
        self._later.append(seen)
        self._wake()

    def _wake(self) -> None:
        """The listening thread looks up.  A no-op once it is gone: its pipe's number may be another file's by then."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._wake_writer >= 0:
                os.write(self._wake_writer, b".")

    def _replace_nursery(self, dead: Nursery) -> None:
        """The forkserver died: start another, adopt its supervisors, ask again for what it had not begun."""
        with self._nursery_lock:
            if self._closing or self._nursery is not dead:
                return
            with contextlib.suppress(OSError, ValueError):
                self._epoll.unregister(dead.socket.fileno())
            dead.close()
            nursery = Nursery(self._state_dir, self._boot)
            self._epoll.register(nursery.socket.fileno(), select.EPOLLIN)
            with self._lock:
                self._ours.clear()
                watched = dict(self._watched)
                again = [run for run in self._asked if run in watched]
            self._nursery = nursery
        for run, run_dir in watched.items():
            with contextlib.suppress(OSError):
                facts, alive = look(run_dir)
                if alive:
                    self._adopt(run, run_dir, facts.opened)
                elif run not in again:  # it left together with the forkserver
                    self._tell_later(self._observe(run, run_dir, Census()))
        for run in again:
            if run in self._asked_again:  # it may be the one that kills forkservers
                message = "two forkservers died over its start; their last words are in forkserver.log"
                self._tell_later(_launch_failed(run, "SupervisorFailed", message))
                continue
            self._asked_again.add(run)
            with contextlib.suppress(OSError):
                with self._lock:
                    self._ours[run] += 1
                nursery.order("supervise", run, watched[run])


def _leave_nothing(run_dir: Path) -> None:
    """Undo a start that was refused before anything was asked for: empty directories and links, never a file."""
    if not (run_dir / SPEC).exists():
        with contextlib.suppress(OSError):
            checkpoints = run_dir / CHECKPOINTS
            checkpoints.unlink() if checkpoints.is_symlink() else checkpoints.rmdir()
            run_dir.rmdir()


def _launch_failed(run: RunId, reason: str, message: str) -> Observation:
    return Observation(
        run_id=run,
        state=AttemptState.LAUNCH_FAILED,
        at=Instant(Clock().wall()),
        exit_code=126,
        reason=reason,
        message=message,
    )


def _receive(sock: socket.socket) -> bytes | None:
    try:
        return sock.recv(1024 * 1024)
    except BlockingIOError:
        return None
