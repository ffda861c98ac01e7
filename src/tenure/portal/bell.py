"""Keeps the gateway: its socket for as long as the platform is up, its process from the first need on.

The gateway starts when a model is declared or somebody calls, and again when it dies; callers wait in the socket's line
meanwhile.  It ends with `stop`, and with this process however that ends.
"""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress

from tenure.control.app import Platform

from . import address
from .sockets import listen_tcp
from .tokens import TokenStore, check_exposure, is_loopback

__all__ = ["Bell"]

log = logging.getLogger("tenure.daemon")

GRACE_S = 5.0
AGAIN_S = 1.0  # between two starts


class Bell:
    """Made before the portal writes its address; raises Forbidden or Unavailable where it cannot listen."""

    def __init__(self, platform: Platform) -> None:
        self._platform, settings = platform, platform.settings
        store = TokenStore(settings.tokens_dir)
        check_exposure(settings.gateway_host, store)
        self._tokens = settings.gateway_tokens or not is_loopback(settings.gateway_host)
        self._socket = listen_tcp(
            settings.gateway_host,
            settings.gateway_port,
            preferred=address.last_port(settings.daemon_dir, "gateway_port"),
            settings="TENURE_GATEWAY",
        )
        self._port = self._socket.getsockname()[1]
        self.url = address.url_of(settings.gateway_host, self._port) + "/v1"
        self._stopping = threading.Event()
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_w, False)
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="bell", daemon=True)

    def start(self) -> None:
        """Say the address beside the portal's, and keep watch.  The process itself starts when it is needed."""
        folder = self._platform.settings.daemon_dir
        address.write(folder, address.read(folder) | {"gateway": self.url, "gateway_port": self._port})
        self._unsubscribe = self._platform.models.subscribe(self._poke)
        self._thread.start()

    def stop(self) -> None:
        """Idempotent.  Answers on their way have a moment; then nobody answers here any more."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._poke()
        if self._thread.is_alive():
            self._unsubscribe()
            self._thread.join(GRACE_S + 5)
        self._socket.close()

    def _poke(self) -> None:
        with suppress(OSError):
            os.write(self._wake_w, b".")

    def _run(self) -> None:
        """A fault of one try does not end the trying."""
        while not self._stopping.is_set():
            try:
                if self._is_needed():
                    self._keep_one()
            except Exception:
                log.exception("the gateway cannot be kept; another try follows")
                self._stopping.wait(AGAIN_S)

    def _is_needed(self) -> bool:
        """Waits until a model is declared, somebody calls, or there is other news."""
        if not self._platform.policy.models:
            listening = self._socket.fileno()
            ready = self._wait_with(listening)
            if not ready and not self._platform.policy.models:
                return False
        return not self._stopping.is_set()

    def _wait_with(self, fd: int) -> bool:
        """Until `fd` can be read, which is the answer, or there is other news."""
        asked = select.poll()
        for one in (fd, self._wake_r):
            asked.register(one, select.POLLIN)
        ready = {one for one, _ in asked.poll()}
        if self._wake_r in ready:
            os.read(self._wake_r, 4096)
        return fd in ready

    def _keep_one(self) -> None:
        """One process from its start to its end.  Raises OSError where it cannot be started."""
        began = time.monotonic()
        alive_r, alive_w = os.pipe()
        try:
            try:
                process = self._process = self._start(alive_r)
            finally:
                os.close(alive_r)
            pidfd = os.pidfd_open(process.pid)
            try:
                while not self._stopping.is_set():
                    if self._wait_with(pidfd):
                        log.warning("the gateway ended (status %s); another one is started", process.wait())
                        self._stopping.wait(max(0.0, AGAIN_S - (time.monotonic() - began)))
                        return
            finally:
                os.close(pidfd)
        finally:
            os.close(alive_w)
            self._end()

    def _start(self, alive_r: int) -> subprocess.Popen[bytes]:
        fds = (self._socket.fileno(), alive_r)
        command = [sys.executable, "-P", "-m", "tenure.gateway.main", "--fd", str(fds[0]), "--alive-fd", str(fds[1])]
        if self._tokens:
            command.append("--tokens")
        settings = self._platform.settings
        env = {**os.environ, "TENURE_HOME": str(settings.home)}
        with open(settings.daemon_dir / "gateway.log", "ab") as sink:  # until it has opened its log itself
            return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, pass_fds=fds)

    def _end(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
