"""A real platform behind a real server on real sockets, in a home of its own."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "telemetry"))
from nvml_fixtures import fake_nvml, nvml_library  # noqa: F401

from tenure.control.app import Platform
from tenure.portal.server import Addresses, PortalServer
from tenure.settings import load

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server said, with its body as bytes and, where it is some, as JSON."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket, through the folder's descriptor, so that its path may be long."""

    def __init__(self, path: Path, timeout: float = 60) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(f"/proc/self/fd/{folder}/{self.path.name}")
        finally:
            os.close(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A platform with its portal, and a client for both of its sockets."""

    platform: Platform
    server: PortalServer
    at: Addresses

    def unix(self, timeout: float = 60) -> UnixConnection:
        return UnixConnection(self.at.socket, timeout)

    def tcp(self, timeout: float = 60) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.at.host, self.at.port, timeout=timeout)

    @property
    def token(self) -> str:
        return (self.platform.settings.tokens_dir / "operator").read_text().strip()

    def ask(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, over: str = "unix"
    ) -> Answer:
        connection = self.unix() if over == "unix" else self.tcp()
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            return Answer(
                status=answer.status, headers={k.lower(): v for k, v in answer.getheaders()}, body=answer.read()
            )
        finally:
            connection.close()

    def submit(self, *argv: str, **fields: Any) -> str:
        answer = self.ask("POST", "/api/v1/jobs", {"argv": list(argv), **fields})
        assert answer.status == 201, answer.body
        return str(answer.json["id"])

    def until(self, what: str, look: Callable[[], Any], *, seconds: float = 20) -> Any:
        """What `look` answers once that is true; asked again with each line of the diary."""
        end = time.monotonic() + seconds
        while True:
            cursor = self.platform.news.cursor
            if found := look():
                return found
            assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
            self.platform.news.wait(cursor, 0.25)

    def is_(self, job: str, state: str) -> dict[str, Any]:
        """The job once it is in this state."""
        found: dict[str, Any] = self.until(
            f"job {job} is {state}",
            lambda: (shown := self.ask("GET", f"/api/v1/jobs/{job}").json)["state"] == state and shown,
        )
        return found

    def waits(self, job: str) -> None:
        """Returns once it is told that the job waits for quota."""
        self.until(
            f"{job} waits for quota",
            lambda: self.ask("GET", f"/api/v1/jobs/{job}").json["reason"] == "WaitingForQuota",
        )

    def wait(self, job: str, timeout: float = 20) -> dict[str, Any]:
        answer = self.ask("GET", f"/api/v1/jobs/{job}:wait?timeout={timeout}")
        assert answer.status == 200, (answer.status, answer.body, self.ask("GET", f"/api/v1/jobs/{job}").body)
        shown: dict[str, Any] = answer.json
        return shown


@contextmanager
def opened(home: Path, *, cards: tuple[str, ...] = ("8x16Gi",), env: dict[str, str] | None = None) -> Iterator[Door]:
    settings = load({"TENURE_HOME": str(home), "PATH": os.environ["PATH"], "HOME": str(home), **(env or {})})
    platform = Platform.open(settings, cards_flag=cards)
    platform.start()
    server = PortalServer(platform)
    try:
        yield Door(platform=platform, server=server, at=server.start())
    finally:
        server.stop()
        platform.stop(patience_s=20)


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with tempfile.TemporaryDirectory(prefix="tenure-portal-") as folder, opened(Path(folder) / "home") as door:
        yield door


@pytest.fixture
def open_door() -> Callable[..., AbstractContextManager[Door]]:
    """For a test that needs a home or an address of its own."""
    return opened


@pytest.fixture
def unix_connection() -> type[UnixConnection]:
    """For a server that is a process of its own."""
    return UnixConnection


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import expect, sync_playwright  # most tests here want no browser

    expect.set_options(timeout=20_000)  # how long a page may take to hear of something says how busy the machine is

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()
