"""The stage: a platform in a private home, driven by its own program, and the story told from its diary."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tenure.cli.client import Client, Refused, Unreachable
from tenure.settings import load

from .telling import Teller

__all__ = ["Stage"]

QUICK_UP_S, SLOWEST = 1.5, 4.0
PATIENCE_S = 180.0  # how long a step may take says how busy the machine is


class Stage:
    """Everything happens through the `tenure` program, as a person would do it; the diary is only read."""

    def __init__(self, *, keep: bool, card: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="tenure-demo-"))
        self.keep, self.card = keep, card
        self.slowness = 1.0  # of this machine at this hour, as the last start has shown it
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TENURE_")}
        self.env |= {"TENURE_HOME": str(self.home), "PYTHONUNBUFFERED": "1"}
        self.settings = load(self.env)
        self.names: dict[str, str] = {}
        self.teller = Teller(self.names)
        self.events: list[dict[str, Any]] = []
        self._beside: list[subprocess.Popen[bytes]] = []
        self._heard = threading.Condition()
        self._over = threading.Event()
        self._listener = threading.Thread(target=self._listen, name="demo-listener", daemon=True)

    # ------------------------------------------------------------------ the program

    def tenure(self, *words: str, check: bool = True) -> str:
        """Run the program; its stdout.  A failure ends the demo with what it said."""
        program = Path(sys.executable).with_name("tenure")
        done = subprocess.run(
            [str(program), *words],
            env=self.env,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if check and done.returncode:
            raise RuntimeError(f"tenure {' '.join(words)}: exit {done.returncode}\n{done.stderr or done.stdout}")
        return done.stdout.strip()

    def up(self, *, declare: bool = False) -> None:
        began = time.monotonic()
        self.tenure("up", "-d", *(["--card", self.card] if declare else []))
        self.slowness = min(SLOWEST, max(1.0, (time.monotonic() - began) / QUICK_UP_S))
        if not self._listener.is_alive():
            self._listener.start()

    def submit(self, name: str, *flags: str, command: Sequence[str]) -> str:
        job = self.tenure("submit", "--name", name, "--workdir", str(self.home), *flags, "--", *command)
        self.names[job] = name
        return job

    def beside(self, command: Sequence[str], home: Path) -> subprocess.Popen[bytes]:
        """A process that no platform knows, writing to a home of its own.  It does not outlive the demo."""
        process = subprocess.Popen(command, env={**self.env, "TENURE_HOME": str(home)}, stdout=subprocess.DEVNULL)
        self._beside.append(process)
        return process

    def json(self, *words: str) -> Any:
        return json.loads(self.tenure(*words, "-o", "json"))

    def kill_daemon(self) -> int:
        """kill -9, as the kernel would when memory runs out."""
        pid = int(json.loads((self.settings.daemon_dir / "lock").read_text())["pid"])
        os.kill(pid, signal.SIGKILL)
        return pid

    # ------------------------------------------------------------------ the diary

    def _listen(self) -> None:
        """Follow the diary; while nobody answers, go on asking."""
        client, after = Client(self.settings), 0
        while not self._over.is_set():
            try:
                fresh = client.get(f"/events?after={after}&limit=500")
            except (Unreachable, Refused, OSError):
                time.sleep(0.05)
                continue
            items = fresh["items"] if isinstance(fresh, dict) else fresh
            with self._heard:
                for event in items:
                    after = max(after, int(event["id"]))
                    self.events.append(event)
                    self._named(client, event["job_id"])
                    self.teller.tell(event)
                if items:
                    self._heard.notify_all()
            if not items:
                time.sleep(0.05)

    def _named(self, client: Client, job: str | None) -> None:
        """The diary may be quicker than the answer to a submit."""
        if job and job not in self.names:
            try:
                self.names[job] = client.get(f"/jobs/{job}")["name"]
            except (Unreachable, Refused, OSError):
                return

    def wait(
        self, what: str, holds: Callable[[dict[str, Any]], bool], *, seconds: float = PATIENCE_S
    ) -> dict[str, Any]:
        """The first event for which `holds`, past or still to come."""
        end = time.monotonic() + seconds
        seen = 0
        with self._heard:
            while True:
                for event in self.events[seen:]:
                    if holds(event):
                        return event
                seen = len(self.events)
                if time.monotonic() > end:
                    raise RuntimeError(f"waited {seconds:.0f} s for this, in vain: {what}")
                self._heard.wait(0.2)

    def wait_job(self, job: str, kind: str, *, attempt: int | None = None) -> dict[str, Any]:
        def holds(event: dict[str, Any]) -> bool:
            if event["job_id"] != job or event["kind"] != kind:
                return False
            return attempt is None or event["data"].get("attempt") == attempt

        return self.wait(f"{kind} of {self.names.get(job, job)}", holds)

    def wait_model(self, model: str, state: str) -> dict[str, Any]:
        """The first time that a model is in this state."""

        def holds(event: dict[str, Any]) -> bool:
            data = event["data"]
            return event["kind"] == "ModelChanged" and (data["model"], data["state"]) == (model, state)

        return self.wait(f"{model} to be {state}", holds)

    def told(self, kind: str, **data: object) -> list[dict[str, Any]]:
        """The events of a kind so far, with these things in their data."""
        with self._heard:
            return [e for e in self.events if e["kind"] == kind and data.items() <= e["data"].items()]

    def newest(self) -> int:
        """The id of the newest event that was heard."""
        with self._heard:
            return max((int(event["id"]) for event in self.events), default=0)

    def wait_line(self, path: Path, word: str, *, seconds: float = PATIENCE_S) -> None:
        """A run directory is a file anybody can read: wait until a word stands in it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if path.exists() and word in path.read_text(errors="replace"):
                return
            time.sleep(0.05)
        raise RuntimeError(f"waited {seconds:.0f} s for {word!r} in {path}")

    # ------------------------------------------------------------------ the end

    def leave(self) -> list[str]:
        """Stop everything; what is still running afterwards, named."""
        self._over.set()
        for process in self._beside:
            process.kill()
            process.wait()
        self.tenure("down", check=False)
        return self.remains()

    def remains(self) -> list[str]:
        mark = f"TENURE_HOME={self.home}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(f"{entry.name} {(entry / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
            except OSError:
                continue
        return found

    def sweep(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
