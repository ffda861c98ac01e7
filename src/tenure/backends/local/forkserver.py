"""The forkserver: a small single-threaded process that the daemon starts once, and that forks a supervisor in milliseconds.

It imports what a supervisor needs, once, so that all supervisors share those pages.  It holds no descriptor of the daemon
but one socket, reaps the supervisors, and ends when the daemon does: a supervisor then finishes its attempt and leaves.
"""

from __future__ import annotations

import contextlib
import datetime  # noqa: F401  (read_record wants it: loaded here, once, it costs no supervisor its milliseconds)
import errno
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from tenure.sdk.environment import machine

from .layout import NEWS_SOCKET
from .sockets import send_datagram
from .successor import succeed
from .supervisor import supervise
from .witness import look_at

__all__ = ["MOST_IDLE", "main"]

_LOOK_AFTER_S = 0.3  # attempts that start within this time have their code looked at together
MOST_IDLE = 16  # supervisors that wait for another attempt
_IDLE_S = 10.0  # how long all but one of them wait


def main(arguments: list[str]) -> None:
    """Serve until the daemon is gone.  Arguments: the socket's descriptor, the state directory, the boot id."""
    server = _Forkserver(socket.socket(fileno=int(arguments[0])), arguments[1], arguments[2])
    server.serve()
    os._exit(0)  # nothing to take down in order, and signals still come


class _Worker:
    """A process that is a supervisor, of one attempt after the other; between two it waits for an order."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid, self.sock = pid, sock
        self.order: dict[str, Any] | None = None


class _Forkserver:
    """Hands every order to a process of its own.

    A supervisor that has ended well serves the next attempt: forking one and filling its pages again costs more than all
    that it does for a short job.  One is always kept ready.
    """

    def __init__(self, daemon: socket.socket, state_dir: str, boot: str) -> None:
        self._daemon, self._state_dir, self._boot = daemon, state_dir, boot
        self._wake, self._waker = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._epoll = select.epoll()
        self._workers: dict[int, _Worker] = {}  # by the descriptor of our end of its socket
        self._idle: list[_Worker] = []
        self._idle_since = 0.0
        self._unseen: list[str] = []  # run directories whose working tree has not been looked at
        self._look_when = 0.0
        self._witness = 0  # the pid of the one that looks

    def serve(self) -> None:
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        for sock in (self._daemon, self._wake):
            self._epoll.register(sock.fileno(), select.EPOLLIN)
        machine()  # read once, and every supervisor has it
        gc.collect()
        gc.freeze()
        gc.disable()
        self._daemon.send(b'{"ready":true}')
        self._keep_one_ready()
        with contextlib.suppress(ConnectionError):
            while self._step():
                pass

    def _step(self) -> bool:
        """One round of news.  False when the daemon is gone."""
        for fd, _ in self._epoll.poll(self._timeout()):
            if fd == self._wake.fileno():
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(4096)
            elif fd == self._daemon.fileno():
                data = self._daemon.recv(65536)
                if not data:
                    return False
                self._obey(json.loads(data))
            elif fd in self._workers:
                self._hear(self._workers[fd])
        now = time.monotonic()
        if self._unseen and not self._witness and now >= self._look_when:
            self._look()
        if len(self._idle) > 1 and now >= self._idle_since + _IDLE_S:
            for worker in self._idle[1:]:
                self._dismiss(worker)
        self._keep_one_ready()
        self._reap()
        return True

    def _keep_one_ready(self) -> None:
        if not self._idle:
            with contextlib.suppress(OSError):  # no process to be had: the next order will say so
                self._hire()

    def _timeout(self) -> float | None:
        moments = []
        if self._unseen and not self._witness:
            moments.append(self._look_when)
        if len(self._idle) > 1:
            moments.append(self._idle_since + _IDLE_S)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _obey(self, order: dict[str, Any]) -> None:
        data = json.dumps(order).encode()
        while True:
            if not self._idle:
                try:
                    self._hire()
                except OSError as error:
                    self._report(order, error)
                    self._left(order)
                    return
            worker = self._idle.pop()
            try:
                worker.sock.send(data)
                break
            except ConnectionError:  # it died while it waited
                self._dismiss(worker)
        worker.order = order
        if order.get("check"):
            if not self._unseen:
                self._look_when = time.monotonic() + _LOOK_AFTER_S
            self._unseen.append(order["run_dir"])

    def _hear(self, worker: _Worker) -> None:
        """A worker is done with its order, or it has died."""
        try:
            done = worker.sock.recv(64)
        except ConnectionError:
            done = b""
        order, worker.order = worker.order, None
        if done and len(self._idle) < MOST_IDLE:
            self._idle.append(worker)
            self._idle_since = time.monotonic()
        else:
            self._dismiss(worker)
        if order is not None:
            self._left(order)

    def _left(self, order: dict[str, Any]) -> None:
        self._daemon.send(json.dumps({"left": order["run_id"], "run_dir": order["run_dir"]}).encode())

    def _dismiss(self, worker: _Worker) -> None:
        """It leaves when it finds its socket closed."""
        if worker in self._idle:
            self._idle.remove(worker)
        if self._workers.pop(worker.sock.fileno(), None) is not None:
            self._epoll.unregister(worker.sock.fileno())
            worker.sock.close()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                if pid == self._witness:
                    self._witness = 0

    def _hire(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            ours.close()
            self._be(lambda: self._work(theirs))
        theirs.close()
        worker = _Worker(pid, ours)
        self._workers[ours.fileno()] = worker
        self._epoll.register(ours.fileno(), select.EPOLLIN)
        self._idle.append(worker)

    def _look(self) -> None:
        run_dirs, self._unseen = self._unseen, []
        try:
            self._witness = os.fork()
        except OSError:
            return
        if self._witness == 0:
            os.nice(5)
            self._be(lambda: look_at(run_dirs, state_dir=self._state_dir))

    def _be(self, life: Callable[[], None]) -> NoReturn:
        """The child's whole life: it holds nothing of ours, or nobody would notice the other end's death."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            self._epoll.close()
            for sock in (self._daemon, self._wake, self._waker, *(worker.sock for worker in self._workers.values())):
                sock.close()
            os.setsid()
            os.chdir("/")
            life()
            status = 0
        except BaseException:
            with contextlib.suppress(BaseException):
                _print_exception()
        finally:
            os._exit(status)

    def _work(self, sock: socket.socket) -> None:
        while data := _receive(sock):
            order = json.loads(data)
            act = succeed if order["do"] == "succeed" else supervise
            try:
                act(order["run_dir"], state_dir=self._state_dir, boot=self._boot)
            except BaseException as error:
                self._report(order, error)
                raise
            try:
                sock.send(b"done")
            except ConnectionError:
                return  # the forkserver has gone before us
            gc.collect()  # while nobody waits for it

    def _report(self, order: dict[str, Any], error: BaseException) -> None:
        """A supervisor that could not even open its files says so by news alone; the daemon looks at the files as well."""
        print(f"{order['run_id']} in {order['run_dir']}:", file=sys.stderr)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        scarce = isinstance(error, OSError) and error.errno in (errno.EAGAIN, errno.ENOMEM)
        reason = "DiskFull" if full else "OutOfProcesses" if scarce else "SupervisorFailed"
        news = {"run_id": order["run_id"], "state": "trouble", "reason": reason, "message": str(error)}
        send_datagram(os.path.join(self._state_dir, NEWS_SOCKET), json.dumps(news).encode())


def _receive(sock: socket.socket) -> bytes:
    try:
        return sock.recv(65536)
    except ConnectionError:
        return b""


def _print_exception() -> None:
    import traceback  # rarely wanted, and large

    traceback.print_exc()
    sys.stderr.flush()
