"""The forkserver: a small single-threaded process that the daemon starts once, and that forks a supervisor in milliseconds.

It imports what a supervisor needs, once, so that all supervisors share those pages.  It holds no descriptor of the daemon
but one socket, reaps the supervisors, and ends when the daemon does; supervisors never notice.
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
import traceback
from typing import Any

from .layout import NEWS_SOCKET
from .sockets import send_datagram
from .successor import succeed
from .supervisor import supervise
from .witness import look_at

__all__ = ["main"]

_LOOK_AFTER_S = 0.3  # attempts that start within this time have their code looked at together


def main(arguments: list[str]) -> None:
    """Serve until the daemon is gone.  Arguments: the socket's descriptor, the state directory, the boot id."""
    _Forkserver(socket.socket(fileno=int(arguments[0])), arguments[1], arguments[2]).serve()


class _Forkserver:
    def __init__(self, daemon: socket.socket, state_dir: str, boot: str) -> None:
        self._daemon, self._state_dir, self._boot = daemon, state_dir, boot
        self._wake, self._waker = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._epoll = select.epoll()
        self._children: dict[int, dict[str, Any]] = {}  # pid -> what it was forked for
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
        gc.collect()
        gc.freeze()
        gc.disable()
        self._daemon.send(b'{"ready":true}')
        while self._step():
            pass

    def _step(self) -> bool:
        """One round of news.  False when the daemon is gone."""
        looks = bool(self._unseen) and not self._witness
        for fd, _ in self._epoll.poll(max(0.0, self._look_when - time.monotonic()) if looks else None):
            if fd == self._wake.fileno():
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(4096)
                continue
            try:
                data = self._daemon.recv(65536)
            except ConnectionError:
                return False
            if not data:
                return False
            self._obey(json.loads(data))
        if self._unseen and not self._witness and time.monotonic() >= self._look_when:
            self._witness = self._fork({"do": "look", "run_id": "", "run_dir": "", "run_dirs": self._unseen})
            self._unseen = []
        return self._reap()

    def _obey(self, order: dict[str, Any]) -> None:
        self._fork(order)
        if order.get("check"):
            if not self._unseen:
                self._look_when = time.monotonic() + _LOOK_AFTER_S
            self._unseen.append(order["run_dir"])

    def _reap(self) -> bool:
        """Tell the daemon which supervisors have left.  False when it is gone."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return True
            order = self._children.pop(pid, None)
            if pid == self._witness:
                self._witness = 0
            elif order is not None:
                code = os.waitstatus_to_exitcode(status)
                left = {"left": order["run_id"], "run_dir": order["run_dir"], "status": code}
                try:
                    self._daemon.send(json.dumps(left).encode())
                except OSError:
                    return False

    def _fork(self, order: dict[str, Any]) -> int:
        pid = os.fork()
        if pid == 0:
            self._be(order)
        self._children[pid] = order
        return pid

    def _be(self, order: dict[str, Any]) -> None:
        """The child's whole life."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            self._epoll.close()
            for sock in (self._daemon, self._wake, self._waker):
                sock.close()
            os.setsid()
            os.chdir("/")
            if order["do"] == "look":
                os.nice(5)
                look_at(order["run_dirs"], state_dir=self._state_dir)
            elif order["do"] == "succeed":
                succeed(order["run_dir"], state_dir=self._state_dir, boot=self._boot)
            else:
                supervise(order["run_dir"], state_dir=self._state_dir, boot=self._boot)
            status = 0
        except BaseException as error:
            with contextlib.suppress(BaseException):
                print(f"{order['run_id']} in {order['run_dir']}:", file=sys.stderr)
                traceback.print_exc()
                self._report(order, error)
        finally:
            os._exit(status)

    def _report(self, order: dict[str, Any], error: BaseException) -> None:
        """A supervisor that could not even open its files says so by news alone; the daemon looks at the files as well."""
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "DiskFull" if full else "SupervisorFailed"
        news = {"run_id": order["run_id"], "state": "trouble", "reason": reason, "message": str(error)}
        send_datagram(os.path.join(self._state_dir, NEWS_SOCKET), json.dumps(news).encode())
