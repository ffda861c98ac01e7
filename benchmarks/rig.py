"""What the figures share: a platform in a private home, a client that adds little of its own, and honest arithmetic.

Nothing here knows a figure.  Every process started is ended by its handle; a private home is removed at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Home", "Plan", "Row", "Stream", "Wire", "cpu_seconds", "load", "machine", "median", "percentile", "smaps"]

CARD = "8x16Gi"
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much to measure.  `quick` is for a look, not for a table; `scratch` is a folder that goes away."""

    quick: bool
    peers: bool
    scratch: Path

    def times(self, n: int) -> int:
        return max(8, n // 10) if self.quick else n

    def say(self, text: str) -> None:
        print(f"  {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.  `reach` is the bound (None: told, not judged); `more` says that larger is better."""

    what: str
    unit: str
    ours: float | None
    reach: float | None = None
    more: bool = False
    peers: Mapping[str, float | str] = field(default_factory=dict)  # the same measure, or why there is none
    note: str = ""

    @property
    def reached(self) -> bool | None:
        if self.reach is None:
            return None
        if self.ours is None:
            return False
        return self.ours >= self.reach if self.more else self.ours <= self.reach


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000 * len(ordered)) // 1000) - 1)]


def median(values: Sequence[float]) -> float:
    return percentile(values, 0.5)


# ---------------------------------------------------------------------- the wire


class Wire:
    """HTTP/1.1 with keep-alive over a Unix socket, as little of it as the figures need.  One thread's at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.connect(str(path))
        self._rest = b""

    def close(self) -> None:
        self._sock.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def request(method: str, path: str, body: Mapping[str, Any] | None = None, accept: str = "*/*") -> bytes:
        """The bytes of a request, so that making them is outside what is timed."""
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: tenure\r\nAccept: {accept}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        return head.encode() + data

    def send(self, request: bytes) -> None:
        self._sock.sendall(request)

    def answer(self) -> tuple[int, Any]:
        head = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        status = int(head[0].split()[1])
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
        if "chunked" in headers.get("transfer-encoding", ""):
            parts = []
            while size := int(self.until(b"\r\n"), 16):
                parts.append(self.exactly(size))
                self.exactly(2)
            self.exactly(2)
            data = b"".join(parts)
        else:
            data = self.exactly(int(headers.get("content-length", 0)))
        return status, json.loads(data) if data and "json" in headers.get("content-type", "") else data

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer's JSON.  Raises RuntimeError with the problem's text where the platform refuses."""
        self.send(self.request(method, path, body))
        status, data = self.answer()
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {data}")
        return data

    def until(self, mark: bytes) -> bytes:
        while mark not in self._rest:
            self._more()
        found, self._rest = self._rest.split(mark, 1)
        return found

    def exactly(self, size: int) -> bytes:
        while len(self._rest) < size:
            self._more()
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def _more(self) -> None:
        data = self._sock.recv(1 << 18)
        if not data:
            raise ConnectionError(f"{self._path} closed the connection")
        self._rest += data


class Stream:
    """Server-Sent Events read in a thread of their own; each is kept with the time (ns) at which it was here."""

    def __init__(self, path: Path, query: str = "") -> None:
        self._wire = Wire(path)
        self._wire.send(Wire.request("GET", f"/api/v1/events?watch=1{query}", accept="text/event-stream"))
        self._wire.until(b"\r\n\r\n")
        self._news = threading.Condition()
        self._seen: list[tuple[int, dict[str, Any]]] = []
        self._over = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._wire._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._wire.close()

    def wait(self, wanted: Callable[[dict[str, Any]], bool], *, count: int = 1, timeout_s: float = 60.0) -> int:
        """When the `count`-th wanted event arrived.  Raises TimeoutError."""
        deadline, at, found = time.monotonic() + timeout_s, 0, 0
        with self._news:
            while True:
                while at < len(self._seen):
                    when, event = self._seen[at]
                    at += 1
                    found += wanted(event)
                    if found == count:
                        return when
                left = deadline - time.monotonic()
                if left <= 0 or self._over or not self._news.wait(left):
                    raise TimeoutError(f"{found} of {count} events came in {timeout_s:.0f} s")

    def forget(self) -> None:
        with self._news:
            self._seen.clear()

    def _read(self) -> None:
        pending = b""
        try:
            while True:
                size = int(self._wire.until(b"\r\n"), 16)
                pending += self._wire.exactly(size)
                self._wire.exactly(2)
                now = time.time_ns()
                *messages, pending = pending.split(b"\n\n")
                events = [json.loads(m.split(b"\ndata: ", 1)[1]) for m in messages if b"\ndata: " in m]
                with self._news:
                    self._seen += [(now, event) for event in events]
                    self._news.notify_all()
        except (OSError, ValueError):
            with self._news:
                self._over = True
                self._news.notify_all()


# ---------------------------------------------------------------------- a platform


class Home:
    """A platform of its own: `with Home(plan) as home`.  At the end everything of it has stopped.

    Its files stay until the run is over: ext4 without a journal looks at every inode freed in the last minute before it
    gives one out, so that removing ten thousand files here would be timed in what comes next.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.path = Path(tempfile.mkdtemp(prefix="home-", dir=plan.scratch))
        self.work = self.path / "work"
        self.work.mkdir()
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TENURE_")} | {
            "TENURE_HOME": str(self.path)
        }
        self.pid = 0
        self._flags: tuple[str, ...] = ("--card", CARD)

    def __enter__(self) -> Home:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.cli("down", check=False)

    def up(self) -> float:
        """Seconds until the platform was ready."""
        begun = time.monotonic()
        self.cli("up", "-d", *self._flags)
        self._flags = ()
        took = time.monotonic() - begun
        with self.wire() as wire:
            self.pid = int(wire.call("GET", "/api/v1/status")["pid"])
        return took

    def kill(self) -> None:
        """kill -9 of the daemon, and only of it."""
        os.kill(self.pid, signal.SIGKILL)
        while os.path.exists(f"/proc/{self.pid}"):  # it is no child of ours, so there is no event for this
            if Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                break
            time.sleep(0.005)

    def cli(self, *args: str, check: bool = True) -> str:
        done = subprocess.run(
            [tenure(), *args],
            env=self.env,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise RuntimeError(f"tenure {' '.join(args)}: {done.returncode} {done.stderr.strip()}")
        return done.stdout

    def wire(self) -> Wire:
        return Wire(self.path / "daemon" / "api.sock")

    def stream(self, query: str = "") -> Stream:
        return Stream(self.path / "daemon" / "api.sock", query)

    def job(self, *argv: str, **more: Any) -> dict[str, Any]:
        """A submission of one share with its memory; `more` overrides."""
        return {"argv": list(argv), "shares": 1, "gpu_memory": "1Gi", "workdir": str(self.work)} | more

    def submit(self, wire: Wire, *argv: str, **more: Any) -> str:
        return str(wire.call("POST", "/api/v1/jobs", self.job(*argv, **more))["id"])

    def wait(self, wire: Wire, job: str, timeout_s: float = 60.0) -> dict[str, Any]:
        shown = wire.call("GET", f"/api/v1/jobs/{job}:wait?timeout={timeout_s}")
        if not isinstance(shown, dict):
            raise TimeoutError(f"job {job} has not ended after {timeout_s} s")
        return shown

    def output(self, run: str) -> str:
        return (self.path / "runs" / run / "stdout.log").read_text()

    def block(self, wire: Wire, stream: Stream) -> str:
        """A job that holds all eight shares until it is cancelled; it runs when this returns."""
        job = self.submit(wire, "sleep", "100000", shares=8, gpu_memory="16Gi", name="blocker")
        stream.wait(lambda e: e["job_id"] == job and e["kind"] == "JobStarted")
        return job


def tenure() -> str:
    return str(Path(sys.executable).with_name("tenure"))


# ---------------------------------------------------------------------- what the kernel counts


def cpu_seconds(pid: int) -> float:
    """Of a process and of the children that it has reaped."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(fields[i]) for i in (11, 12, 13, 14)) / TICKS


def starters(home: Path) -> list[int]:
    """The forkserver of a home and its children, which are supervisors: what starts jobs, and waits for them."""
    parents: dict[int, int] = {}
    roots = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                pid = int(entry.name)
                parents[pid] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
                if f"{home}/" in line and "forkserver" in line and parents[pid] not in roots:
                    roots.add(pid)
    servers = {pid for pid in roots if parents[pid] not in roots}  # a fork has its parent's command line
    return sorted(servers | {pid for pid, parent in parents.items() if parent in servers})


def smaps(pid: int) -> dict[str, float]:
    """MB (10^6 bytes) of a process: `rss`, `pss`, `private`."""
    kb: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        kb[name] = int(rest.split()[0])
    mb = 1024 / 1e6
    return {
        "rss": kb["Rss"] * mb,
        "pss": kb["Pss"] * mb,
        "private": (kb["Private_Clean"] + kb["Private_Dirty"]) * mb,
    }


def load() -> str:
    """How busy the machine is now: load averages, and the share of all cores idle over half a second."""

    def ticks() -> list[int]:
        return [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]

    before = ticks()
    time.sleep(0.5)
    spent = [b - a for a, b in zip(before, ticks(), strict=True)]
    one, five, _ = os.getloadavg()
    return f"load {one:.1f} {five:.1f}, {100 * (spent[3] + spent[4]) / max(1, sum(spent)):.0f} % idle, {100 * spent[7] / max(1, sum(spent)):.0f} % stolen"


def machine(scratch: Path) -> str:
    """Cores, kernel, interpreter, and what one fdatasync of 4 KiB costs where the ledgers lie (median of 50)."""
    model = next(
        (x.partition(":")[2].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x), "?"
    )
    took = []
    with (scratch / "fdatasync").open("wb") as file:
        for _ in range(50):
            file.write(b"x" * 4096)
            file.flush()
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - begun) * 1000)
    return f"{os.cpu_count()} cores ({model}), Linux {os.uname().release}, Python {sys.version.split()[0]}, {file_system(scratch)}, fdatasync {median(took):.2f} ms"


def file_system(path: Path) -> str:
    """The kind of the file system that holds a path."""
    mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    holding = [(len(point), kind) for point, kind in mounts if path.is_relative_to(point.replace("\\040", " "))]
    return max(holding)[1]


@contextlib.contextmanager
def scratch(parent: Path | None = None) -> Iterator[Path]:
    """A short path (Unix sockets allow 108 bytes), readable by the daemons of peers."""
    path = Path(tempfile.mkdtemp(prefix="tnb-", dir=parent)).resolve()
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
