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
import traceback
from typing import Any

from .layout import NEWS_SOCKET
from .sockets import send_datagram
from .successor import succeed
from .supervisor import supervise

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Serve until the daemon is gone.  Arguments: the socket's descriptor, the state directory, the boot id."""
    sock = socket.socket(fileno=int(arguments[0]))
    state_dir, boot = arguments[1], arguments[2]
    wake, waker = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    epoll = select.epoll()
    epoll.register(sock.fileno(), select.EPOLLIN)
    epoll.register(wake.fileno(), select.EPOLLIN)
    children: dict[int, dict[str, Any]] = {}
    gc.collect()
    gc.freeze()
    gc.disable()
    sock.send(b'{"ready":true}')
    while True:
        for fd, _ in epoll.poll():
            if fd == wake.fileno():
                with contextlib.suppress(BlockingIOError):
                    wake.recv(4096)
                continue
            try:
                data = sock.recv(65536)
            except ConnectionError:
                return
            if not data:
                return
            order = json.loads(data)
            pid = os.fork()
            if pid == 0:
                _child(order, state_dir, boot, (sock, wake, waker), epoll)
            children[pid] = order
        if not _reap(children, sock):
            return


def _reap(children: dict[int, dict[str, Any]], sock: socket.socket) -> bool:
    """Tell the daemon which supervisors have left.  False when it is gone."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return True
        order = children.pop(pid, None)
        if order is not None:
            left = {"left": order["run_id"], "run_dir": order["run_dir"], "status": os.waitstatus_to_exitcode(status)}
            try:
                sock.send(json.dumps(left).encode())
            except OSError:
                return False


def _child(
    order: dict[str, Any], state_dir: str, boot: str, inherited: tuple[socket.socket, ...], epoll: select.epoll
) -> None:
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        epoll.close()
        for sock in inherited:
            sock.close()
        os.setsid()
        os.chdir("/")
        act = succeed if order["do"] == "succeed" else supervise
        act(order["run_dir"], state_dir=state_dir, boot=boot)
        status = 0
    except BaseException as error:
        with contextlib.suppress(BaseException):
            print(f"{order['run_id']}: {order['run_dir']}", file=sys.stderr)
            traceback.print_exc()
            _report(order, error, state_dir)
    finally:
        os._exit(status)


def _report(order: dict[str, Any], error: BaseException, state_dir: str) -> None:
    """A supervisor that could not even open its files says so by news alone; the daemon looks at the files as well."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    news = {
        "run_id": order["run_id"],
        "state": "trouble",
        "reason": "DiskFull" if full else "SupervisorFailed",
        "message": str(error),
    }
    send_datagram(os.path.join(state_dir, NEWS_SOCKET), json.dumps(news).encode())
