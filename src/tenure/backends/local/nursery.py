"""The daemon's end of the forkserver: starts it, asks it for supervisors, hears which of them have left."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import tenure
from tenure.domain.errors import Unavailable

from .layout import FORKSERVER_LOG

__all__ = ["Nursery"]

_READY_WITHIN_S = 20.0
_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from tenure.backends.local.forkserver import main; main(sys.argv[1:])"


class Nursery:
    """One forkserver.  `socket` becomes readable when a supervisor has left, and at the forkserver's own end."""

    def __init__(self, state_dir: Path, boot: str) -> None:
        self._lock = threading.Lock()
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        source = str(Path(tenure.__file__).resolve().parent.parent)
        log = os.open(state_dir / FORKSERVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, source, str(theirs.fileno()), str(state_dir), boot],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(theirs.fileno(),), start_new_session=True, cwd="/",
                env={name: os.environ[name] for name in ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "HOME", "XDG_CONFIG_HOME") if name in os.environ},
            )  # fmt: skip
        finally:
            os.close(log)
            theirs.close()
        self.socket.settimeout(_READY_WITHIN_S)
        try:
            ready = self.socket.recv(4096)
        except OSError:
            ready = b""
        if not ready:
            self.close()
            raise Unavailable(f"the forkserver did not start; its last words are in {state_dir / FORKSERVER_LOG}")
        self.socket.settimeout(_READY_WITHIN_S)

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def order(self, what: str, run: str, run_dir: str, *, check: bool = False) -> None:
        """Ask for a supervisor (`supervise`) or for a lost attempt's successor (`succeed`).  Raises OSError when it is gone.

        `check` asks for a look at the working tree as well.
        """
        with self._lock:
            self.socket.send(json.dumps({"do": what, "run_id": run, "run_dir": run_dir, "check": check}).encode())

    def hear(self) -> dict[str, Any] | None:
        """The next message, or None at the forkserver's end.  Blocks: ask when the socket is readable."""
        try:
            data = self.socket.recv(65536)
        except OSError:
            return None
        if not data:
            return None
        found: dict[str, Any] = json.loads(data)
        return found

    def close(self) -> None:
        """The forkserver ends; its supervisors go on."""
        self.socket.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)
