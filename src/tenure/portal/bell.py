"""Keeps the gateway: its socket for as long as the platform is up, its process from the first need on.

The gateway starts when a model is declared or somebody calls, and again when it dies; callers wait in the socket's line
meanwhile.  It ends with `stop`, and with this process however that ends.
"""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from tenure.control.app import Platform

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
            preferred=_last(settings.daemon_dir),
            settings="TENURE_GATEWAY",
        )
        port = self._socket.getsockname()[1]
        name = settings.gateway_host if settings.gateway_host not in ("0.0.0.0", "::") else "127.0.0.1"
        self.url = f"http://[{name}]:{port}/v1" if ":" in name else f"http://{name}:{port}/v1"
        self._stopping = threading.Event()
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_w, False)
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="bell", daemon=True)

    def start(self) -> None:
        """Say the address beside the portal's, and keep watch.  The process itself starts when it is needed."""
        path = self._platform.settings.daemon_dir / "address.json"
        said = json.loads(path.read_text("utf-8")) | {
            "gateway": self.url,
            "gateway_port": self._socket.getsockname()[1],
        }
        fresh = path.with_name(f"address.json.{os.getpid()}")
        fresh.write_text(json.dumps(said) + "\n", "utf-8")
        fresh.replace(path)
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
        while not self._stopping.is_set():
            if not self._platform.policy.models:
                listening = self._socket.fileno()
                ready, _, _ = select.select([listening, self._wake_r], [], [])
                if self._wake_r in ready:
                    os.read(self._wake_r, 4096)
                if listening not in ready and not self._platform.policy.models:
                    continue
            if not self._stopping.is_set():
                self._keep_one()

    def _keep_one(self) -> None:
        """One process from its start to its end."""
        began = time.monotonic()
        alive_r, alive_w = os.pipe()
        command = [sys.executable, "-P", "-m", "tenure.gateway.main", "--fd", str(self._socket.fileno()), "--alive-fd", str(alive_r)]  # fmt: skip
        if self._tokens:
            command.append("--tokens")
        env = {**os.environ, "TENURE_HOME": str(self._platform.settings.home)}
        try:
            with open(self._platform.settings.daemon_dir / "gateway.log", "ab") as sink:
                self._process = subprocess.Popen(
                    command, env=env, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, pass_fds=(self._socket.fileno(), alive_r),
                )  # fmt: skip
        except OSError as error:
            log.error("the gateway cannot be started: %s", error)
            self._stopping.wait(AGAIN_S)
            return
        finally:
            os.close(alive_r)
        pidfd = os.pidfd_open(self._process.pid)
        try:
            while not self._stopping.is_set():
                ready, _, _ = select.select([pidfd, self._wake_r], [], [])
                if self._wake_r in ready:
                    os.read(self._wake_r, 4096)
                if pidfd in ready:
                    log.warning("the gateway ended (status %s); another one is started", self._process.wait())
                    self._stopping.wait(max(0.0, AGAIN_S - (time.monotonic() - began)))
                    return
        finally:
            os.close(pidfd)
            os.close(alive_w)
            self._end()

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


def _last(folder: Path) -> int | None:
    """The port of the daemon before, so that clients find the next one."""
    try:
        port = json.loads((folder / "address.json").read_text("utf-8"))["gateway_port"]
        return port if isinstance(port, int) and 0 < port < 65536 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
