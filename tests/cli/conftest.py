"""The program itself, `.venv/bin/tenure`, against platforms of its own in private homes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

TENURE = Path(sys.executable).with_name("tenure")


@dataclass
class Home:
    """One private TENURE_HOME and the program pointed at it."""

    path: Path
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TENURE_", "SLURM_")) and k != "NO_COLOR"}
        self.env = {**kept, "TENURE_HOME": str(self.path), "LC_ALL": "C.UTF-8"}

    def tenure(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: bytes = b"",
        timeout: float = 60,
    ) -> Answer:
        done = subprocess.run(
            [str(TENURE), *words],
            env={**self.env, **(env or {})},
            cwd=cwd,
            input=stdin,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def ok(self, *words: str, **more: Any) -> str:
        """Its stdout; a failure of the program is a failure of the test, with what it said."""
        answer = self.tenure(*words, **more)
        assert answer.code == 0, answer
        return answer.out

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(words[0], "-o", "json", *words[1:]))

    def submit(self, *words: str) -> str:
        return self.ok("submit", *words).strip()

    def spawn(self, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(TENURE), *words], env=self.env, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more
        )

    def until(self, job: str, *states: str, timeout: float = 20) -> dict[str, Any]:
        """The job once it is in one of these states."""
        return eventually(lambda: (shown := self.json("show", job))["state"] in states and shown, timeout=timeout)

    def pid(self) -> int:
        return int(json.loads((self.path / "daemon" / "lock").read_text())["pid"])

    def up(self, *words: str) -> Answer:
        return self.tenure("up", "-d", "--card", "8x16Gi", *words)


@dataclass(frozen=True)
class Answer:
    code: int
    raw: bytes
    raw_err: bytes

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def err(self) -> str:
        return self.raw_err.decode()


def eventually(look: Callable[[], Any], *, timeout: float = 20) -> Any:
    """What `look` answers once that is true.  For what has no event to wait for: another process's view of the world."""
    deadline = time.monotonic() + timeout
    while not (found := look()):
        assert time.monotonic() < deadline, f"still {found!r} after {timeout} s"
        time.sleep(0.02)
    return found


def is_alive(pid: int) -> bool:
    """Alive and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def processes_of(home: Path) -> list[int]:
    """Every process that was started with this TENURE_HOME in its environment or its directory under it."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and int(entry) != os.getpid():
            try:
                env = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"TENURE_HOME=" + os.fsencode(home) in env and is_alive(int(entry)):
                found.append(int(entry))
    return found


def close(home: Home) -> None:
    """End the platform of a home by its own word, and what is left of it by name: a process of this home alone."""
    home.tenure("down", timeout=60)
    for pid in processes_of(home.path):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """One platform for the tests that only need jobs, on a path with spaces, letters from elsewhere and no end."""
    home = Home(tmp_path_factory.mktemp("cli") / ("a long way " * 10) / "ein Haus für 训练")
    answer = home.up()
    assert answer.code == 0, answer
    yield home
    close(home)
    assert processes_of(home.path) == []


@pytest.fixture
def home(shared: Home) -> Iterator[Home]:
    """The shared platform, with nothing live left over by the test before."""
    yield shared
    left = shared.ok("ps", "-o", "name").split()
    if left:
        shared.tenure("cancel", "--grace", "0", *left)
        shared.tenure("wait", "--timeout", "20", *left)


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Home]:
    """A home of the test's own, with nothing running in it."""
    home = Home(tmp_path / "home of one")
    yield home
    close(home)


@pytest.fixture
def nowhere(tmp_path: Path) -> Home:
    """A home that does not exist."""
    return Home(tmp_path / "nothing runs here")


@pytest.fixture
def running(private: Home) -> Home:
    """A platform of the test's own."""
    answer = private.up()
    assert answer.code == 0, answer
    return private
