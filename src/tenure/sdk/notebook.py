"""A notebook as a job: starts a Jupyter server, says where it is, and ends it once nobody uses it.

    python -m tenure.sdk.notebook --idle 3600 --root DIR -- jupyter-lab

Runs inside the job, between the supervisor and the server.  The address and the token are in `notebook.json` of the run's
directory (0600), and nowhere else: no log, no command line, no ledger.  A later attempt of the job takes the same port and
token where it can, so that an open page finds its server again.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from tenure.sdk.idleness import Idleness

__all__ = ["FILE", "main"]

FILE = "notebook.json"
READY_S = 0.1  # between two questions whether it answers already
LONGEST_LOOK_S = 30.0
LONGEST_WARNING_S = 300.0
HOST = "127.0.0.1"


class Server:
    """The Jupyter server, its port and its token."""

    def __init__(self, command: list[str], root: str, port: int, token: str) -> None:
        self.port, self.token = port, token
        more = [
            "--no-browser",
            f"--ServerApp.ip={HOST}",
            f"--ServerApp.port={port}",
            "--ServerApp.port_retries=0",
            f"--ServerApp.root_dir={root}",
        ]
        if os.geteuid() == 0:
            more.append("--allow-root")
        env = {**os.environ, "JUPYTER_TOKEN": token}  # not in its arguments, which everybody may read
        self.process = subprocess.Popen([*command, *more], env=env, cwd=root)

    def ask(self, path: str) -> Any:
        """A JSON answer; None where it does not answer, or not with one of ours."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=10)
        try:
            connection.request("GET", path, headers={"Authorization": f"token {self.token}"})
            reply = connection.getresponse()
            data = reply.read()
            return json.loads(data) if reply.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def listed(self, path: str) -> list[dict[str, Any]] | None:
        """An API that the server does not have (terminals may be off) lists nothing; None: it does not answer."""
        answer = self.ask(path)
        if isinstance(answer, list):
            return [item for item in answer if isinstance(item, dict)]
        return [] if self.ask("/api/status") is not None else None

    def stop(self) -> int:
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        return self.process.wait()


def main(argv: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(prog="tenure.sdk.notebook")
    parser.add_argument("--idle", type=float, default=3600.0, help="seconds without use after which it ends")
    parser.add_argument("--root", default=".", help="the directory that it shows")
    options = parser.parse_args(words[:cut])
    command = words[cut + 1 :] or ["jupyter-lab"]
    run_dir = Path(os.environ.get("TENURE_RUN_DIR") or ".")
    port, token = _address(run_dir)
    root = os.path.abspath(options.root)
    try:
        server = Server(command, root, port, token)
    except OSError as error:
        _say(f"{command[0]} cannot be started: {(error.strerror or str(error)).lower()}")
        return 127 if isinstance(error, FileNotFoundError) else 126

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _asked)
    try:
        if not _wait_until_ready(server):
            _say(f"{command[0]} ended before it answered; what it printed is above")
            return server.process.returncode or 1
        url = f"http://{HOST}:{port}/lab?token={token}"
        _publish(run_dir, {"port": port, "token": token, "url": url, "root": root})
        _say(f"the notebook answers on port {port}; it stops after {_span(options.idle)} without use")
        return _watch(server, options.idle)
    except _Asked as asked:
        server.stop()
        return 128 + asked.number


class _Asked(Exception):
    """The platform wants the card back, or somebody cancelled."""

    def __init__(self, number: int) -> None:
        self.number = number


def _asked(number: int, frame: FrameType | None) -> NoReturn:
    raise _Asked(number)


def _watch(server: Server, idle_s: float) -> int:
    """Until the server ends, or nobody has used it for that long.

    Nobody is stopped unwarned: where a look came late, the warning does, and the stop with the look after it.
    """
    warning_s = min(LONGEST_WARNING_S, idle_s / 4)
    look_s = min(LONGEST_LOOK_S, idle_s / 20)
    idleness, warned = Idleness(server.process.pid), False
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return server.process.wait(look_s)
        kernels, terminals = server.listed("/api/kernels"), server.listed("/api/terminals")
        if kernels is None or terminals is None:
            continue  # busy, or about to end: nothing is known, and so nothing is held against it
        in_use = idleness.look(kernels, terminals)
        if in_use:
            if warned:
                _tell(f"goes on: {in_use}")
            warned = False
            continue
        left = idle_s - idleness.seconds
        if left <= warning_s and not warned:
            warned = True
            _tell(f"stops in {_span(max(left, look_s))} unless it is used: kernels, terminals and card are idle")
        elif left <= 0:
            _tell(f"stopped: kernels, terminals and card were idle for {_span(idle_s)}; the files stay where they are")
            server.stop()
            return 0


def _wait_until_ready(server: Server) -> bool:
    while server.process.poll() is None:
        if server.ask("/api/status") is not None:
            return True
        time.sleep(READY_S)
    return False


def _address(run_dir: Path) -> tuple[int, str]:
    """Those of the attempt before, as far as they can be had; else a free port and a new token."""
    job, _, number = run_dir.name.rpartition(".")
    before: dict[str, Any] = {}
    if job and number.isdecimal():
        with contextlib.suppress(OSError, ValueError):
            before = json.loads((run_dir.parent / f"{job}.{int(number) - 1}" / FILE).read_text("utf-8"))
    token = str(before.get("token") or secrets.token_urlsafe(24))
    for port in (int(before.get("port") or 0), 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                return int(probe.getsockname()[1]), token
    raise OSError("no free port on 127.0.0.1")


def _publish(run_dir: Path, about: dict[str, Any]) -> None:
    """All of it or nothing, for its owner's eyes."""
    path = run_dir / FILE
    part = path.with_suffix(".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(about, file)
    part.rename(path)


def _tell(message: str) -> None:
    """In the run's log, and as a line of the job's diary where the platform answers."""
    _say(f"the notebook {message}")
    home, job = os.environ.get("TENURE_HOME"), os.environ.get("TENURE_JOB_ID")
    if home and job:
        with contextlib.suppress(OSError, http.client.HTTPException):
            _post(f"{home}/daemon", f"/api/v1/jobs/{job}:note", {"message": f"the notebook {message}"})


def _post(folder: str, path: str, body: dict[str, str]) -> None:
    """Over the platform's Unix socket, reached through its directory: the kernel takes no long path."""
    at = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(5)
            sock.connect(f"/proc/self/fd/{at}/api.sock")
            connection = http.client.HTTPConnection("tenure", timeout=5)
            connection.sock = sock
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            connection.getresponse().read()
    finally:
        os.close(at)


def _say(text: str) -> None:
    print(f"tenure: {text}", file=sys.stderr, flush=True)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


if __name__ == "__main__":
    sys.exit(main())
