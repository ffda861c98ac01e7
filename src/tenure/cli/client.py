"""The way to the platform: JSON and streams of bytes over its Unix socket, or over TCP where TENURE_URL says so.

Errors are translated here, once: `Unreachable` (exit 69) when nobody answers, `Refused` when the platform said no.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from tenure.settings import Settings

__all__ = ["Client", "Refused", "Unreachable", "job_path"]

API = "/api/v1"
LOST = (OSError, http.client.HTTPException)


class Unreachable(Exception):
    """Nobody answers.  The text says how to start the platform."""


class Refused(Exception):
    """The platform answered with a problem (RFC 9457)."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or f"status {status}"))
        self.status = status
        self.code = str(problem.get("code") or "")
        self.field = problem.get("field")
        self.problems = problem.get("problems") or []


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket.  A path too long for the kernel (108 bytes) is reached through its directory."""

    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("tenure", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(self.timeout)
        try:
            if len(os.fsencode(self._path)) < 108:
                sock.connect(self._path)
            else:
                folder = os.open(os.path.dirname(self._path), os.O_PATH | os.O_DIRECTORY)
                try:
                    sock.connect(f"/proc/self/fd/{folder}/{os.path.basename(self._path)}")
                finally:
                    os.close(folder)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


def job_path(job: str, verb: str = "") -> str:
    """`/jobs/37`, `/jobs/37:cancel`, `/jobs/37/logs`."""
    return f"/jobs/{quote(job, safe='')}{verb}"


class Client:
    """One caller's way to one platform.  Not shared between threads: each makes its own with `twin`."""

    def __init__(self, settings: Settings, *, timeout_s: float = 30.0) -> None:
        self.settings = settings
        self._timeout_s = timeout_s
        self._kept: http.client.HTTPConnection | None = None

    def twin(self) -> Client:
        return Client(self.settings, timeout_s=self._timeout_s)

    def get(self, path: str, **query: object) -> Any:
        """The JSON answer; None for 204.  Raises Unreachable, Refused."""
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None) -> Any:
        return self.call("POST", path, body=body or {}, headers=headers)

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """One request and its answer.  A GET on a kept connection that had gone stale is asked once more."""
        fresh = self._kept is None
        try:
            connection = self._kept or self._open(timeout_s or self._timeout_s)
            self._kept = connection
            if connection.sock is not None:
                connection.sock.settimeout(timeout_s or self._timeout_s)
            connection.request(method, _target(path, query), body=_encode(body), headers=self._headers(headers, body))
            reply = connection.getresponse()
            data = reply.read()
        except LOST as error:
            self.close()
            if not fresh and method == "GET":
                return self.call(method, path, query=query, body=body, headers=headers, timeout_s=timeout_s)
            raise Unreachable(self._explain(error)) from error
        except BaseException:
            self.close()
            raise
        return _answer(reply, data)

    @contextlib.contextmanager
    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        silence_s: float | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer read as it comes, on a connection of its own.  `silence_s` bounds the wait for the next byte."""
        connection = self._open(silence_s)
        try:
            try:
                connection.request("GET", _target(path, query), headers=self._headers(headers, None))
                reply = connection.getresponse()
                if reply.status >= 400:
                    _answer(reply, reply.read())
            except LOST as error:
                raise Unreachable(self._explain(error)) from error
            yield reply
        finally:
            connection.close()

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _open(self, timeout_s: float | None) -> http.client.HTTPConnection:
        if self.settings.url is None:
            return _UnixConnection(str(self.settings.api_socket), timeout_s)
        url = urlsplit(self.settings.url)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        return kind(url.hostname or "127.0.0.1", url.port, timeout=timeout_s)

    def _headers(self, more: Mapping[str, str] | None, body: object) -> dict[str, str]:
        headers = dict(more or {})
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.settings.token and self.settings.url is not None:
            headers["Authorization"] = f"Bearer {self.settings.token}"
        return headers

    def _explain(self, error: Exception) -> str:
        home = self.settings.home
        if self.settings.url is not None:
            return f"no platform answers at {self.settings.url} ({_cause(error)}); check TENURE_URL, or unset it for the one on this machine"
        if isinstance(error, PermissionError):
            return f"the platform in {home} belongs to another user: its socket may not be opened ({_cause(error)})"
        if isinstance(error, TimeoutError):
            return f"the platform in {home} does not answer; `tenure doctor` looks for the cause"
        return f"no platform is running in {home}; start it with `tenure up -d` (TENURE_HOME decides where it lives)"


def _cause(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


def _target(path: str, query: Mapping[str, object] | None) -> str:
    full = path if path.startswith(("/healthz", "/readyz", "/version")) else API + path
    asked = [(k, one) for k, v in (query or {}).items() for one in (v if isinstance(v, list) else [v])]
    pairs = [(k, str(v).lower() if isinstance(v, bool) else str(v)) for k, v in asked if v is not None]
    return f"{full}?{urlencode(pairs)}" if pairs else full


def _encode(body: Mapping[str, Any] | None) -> bytes | None:
    return None if body is None else json.dumps(body).encode()


def _answer(reply: http.client.HTTPResponse, data: bytes) -> Any:
    kind = reply.headers.get_content_type()
    if reply.status >= 400:
        try:
            problem = json.loads(data)
        except ValueError:
            problem = {}
        raise Refused(reply.status, problem if isinstance(problem, dict) else {"detail": str(problem)})
    if not data:
        return None
    return json.loads(data) if kind.endswith("json") else data
