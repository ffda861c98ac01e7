"""A platform as `tenure up` runs it, its gateway, and small model servers with knobs behind it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tenure.cli.client import Client
from tenure.settings import load

TENURE = Path(sys.executable).with_name("tenure")
PATIENCE_S = 45.0  # with what takes a moment; whatever has to be quick says so itself
SERVER = [sys.executable, "-P", "-m", "tenure.testing.model_server", "--port", "{port}"]


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    asked_at: float
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}, "an error has OpenAI's shape"
        return error


@dataclass
class Home:
    """One platform.  `declare` before or after `up`; `ask` at its gateway."""

    path: Path
    env: dict[str, str] = field(default_factory=dict)
    url: str = ""
    bearer: dict[str, str] = field(default_factory=dict)  # headers with which its gateway tells which models there are

    def __post_init__(self) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TENURE_")}
        self.env = {**kept, "TENURE_HOME": str(self.path)} | self.env

    def tenure(self, *words: str) -> str:
        done = subprocess.run(
            [str(TENURE), *words], env=self.env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def up(self, *words: str) -> None:
        self.tenure("up", "-d", "--card", "8x16Gi", *words)
        self.url = self.tenure("gateway", "url").strip()

    def declare(self, name: str, *knobs: str, **spec: Any) -> None:
        body = {"queueName": "large-model", "priorityClassName": "on-demand", "shares": 1, "gpuMemory": "1Gi"}
        body |= {"command": [*SERVER, *knobs], "stopTimeout": "5s"} | spec  # type: ignore[dict-item]
        document = {"apiVersion": "tenure.dev/v1", "kind": "Model", "metadata": {"name": name}, "spec": body}
        (self.path / "policy" / f"{name}.json").write_text(json.dumps(document))

    def reload(self) -> None:
        """The documents are read, and the gateway has heard of them."""
        self.rest("POST", "/policy:reload")
        names = {path.stem for path in (self.path / "policy").glob("*.json")}
        eventually(lambda: names <= set(self.heard()))

    def heard(self) -> dict[str, str]:
        """Every model and its state, as the gateway has heard: a moment later than the platform says it."""
        listed = self.ask("GET", "/v1/models", headers=self.bearer).json["data"]
        return {one["id"]: one["status"] for one in listed}

    def hears(self, name: str, state: str) -> None:
        """Until the gateway has heard that a model is in that state."""
        eventually(lambda: self.heard().get(name) == state)

    def kill(self) -> None:
        """The daemon, outright; back when it is gone."""
        daemon = int(self.rest("GET", "/status")["pid"])
        os.kill(daemon, signal.SIGKILL)
        eventually(lambda: not alive(daemon))

    def connect(self, timeout: float = PATIENCE_S) -> http.client.HTTPConnection:
        at = urlsplit(self.url)
        assert at.hostname is not None
        return http.client.HTTPConnection(at.hostname, at.port, timeout=timeout)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        timeout: float = PATIENCE_S,
    ) -> Answer:
        connection, asked_at = self.connect(timeout), time.time()
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        try:
            connection.request(method, path, data, sent | (headers or {}))
            answer = connection.getresponse()
            told = {k.lower(): v for k, v in answer.getheaders()}
            return Answer(answer.status, told, answer.read(), asked_at, time.time())
        finally:
            connection.close()

    def chat(
        self, model: str, *, headers: dict[str, str] | None = None, timeout: float = PATIENCE_S, **fields: Any
    ) -> Answer:
        body = {"model": model, "messages": [{"role": "user", "content": "?"}], **fields}
        return self.ask("POST", "/v1/chat/completions", body, headers=headers, timeout=timeout)

    def model(self, name: str) -> dict[str, Any]:
        row: dict[str, Any] = next(row for row in self.rest("GET", "/models") if row["name"] == name)
        return row

    def rest(self, method: str, path: str, body: Any = None, **query: object) -> Any:
        """The platform's own REST, without a process for each question."""
        client = Client(load(self.env))
        try:
            return client.call(method, path, query=query, body={} if method == "POST" and body is None else body)
        finally:
            client.close()

    def submit(self, *argv: str, gpu_memory: str = "12Gi") -> str:
        """A training job that needs every share of the card: asked for at once, where the CLI would take its time."""
        body = {"argv": argv, "priority": "training", "shares": 8, "gpu_memory": gpu_memory}
        return str(self.rest("POST", "/jobs", body)["id"])

    def until(self, name: str, *states: str, timeout: float = PATIENCE_S) -> dict[str, Any]:
        found: dict[str, Any] = eventually(
            lambda: (row := self.model(name))["state"] in states and row, timeout=timeout
        )
        return found

    def diary(self) -> list[dict[str, Any]]:
        """All of it, page by page: a home that many tests share has a long one."""
        found: list[dict[str, Any]] = []
        while page := self.rest("GET", "/events", after=found[-1]["id"] if found else 0, limit=5000):
            found += page
        return found

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.diary() if event["kind"] == kind]

    def forget(self) -> None:
        """Every model asleep, none declared, and the gateway has heard of it: the next test may use their names."""
        for row in self.rest("GET", "/models"):
            self.rest("POST", f"/models/{row['name']}:sleep")
        for path in (self.path / "policy").glob("*.json"):
            path.unlink()
        self.rest("POST", "/policy:reload")
        eventually(lambda: self.rest("GET", "/models") == [])
        eventually(lambda: self.heard() == {})


def eventually(look: Callable[[], Any], *, timeout: float = PATIENCE_S) -> Any:
    """What `look` answers once that is true: for another process's view of the world, which has no event here."""
    deadline = time.monotonic() + timeout
    while not (found := look()):
        assert time.monotonic() < deadline, f"still {found!r} after {timeout} s"
        time.sleep(0.05)
    return found


def lines(path: Path) -> list[dict[str, Any]]:
    """Those that are written to their end: another process may be in the middle of one."""
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


def alive(pid: int, word: str = "") -> bool:
    """Is that process there, and no zombie?  With a word of its command line no other one that was given its number is."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" and word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def gateway_pid(home: Home) -> int:
    """The gateway's process: a child of the daemon."""
    daemon = int(json.loads((home.path / "daemon" / "lock").read_text())["pid"])

    def look() -> list[int]:
        children = psutil.Process(daemon).children()
        return [child.pid for child in children if alive(child.pid, "tenure.gateway.main")]

    (found,) = eventually(look)
    return int(found)


@contextmanager
def opened(path: Path, **env: str) -> Iterator[Home]:
    home = Home(path, env)
    home.up()
    try:
        yield home
    finally:
        home.tenure("down")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with opened(tmp_path_factory.mktemp("gateway") / ("a long way " * 10) / "home") as home:
        yield home


@pytest.fixture
def home(shared: Home) -> Iterator[Home]:
    yield shared
    shared.forget()
