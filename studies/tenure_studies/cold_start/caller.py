"""A caller who waits: an OpenAI-compatible base URL, a streamed answer, and a clock of its own.

What it learns it learns as any caller would, and from what the server itself says at `/phases`.  Standard library only.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

__all__ = ["Caller", "Heard", "NotAnswered"]

CONNECT_S = 10.0
POLL_S = 0.1


class NotAnswered(Exception):
    """An error instead of an answer.  `fatal`: the same request would get it again."""

    def __init__(self, message: str, *, status: int = 0, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.status, self.retry_after_s = status, retry_after_s

    @property
    def fatal(self) -> bool:
        return self.status in (400, 401, 403, 404, 405, 422)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A streamed answer by the caller's clock.  Seconds since it asked; `asked_at` and `told_at` are unix seconds.

    `clock_moved_s`: how far the wall clock went against the monotonic one meanwhile.  Where it was set, what the server says
    in wall-clock time cannot be laid beside the caller's.
    """

    asked_at: float
    head_s: float
    first_byte_s: float  # of the body: a comment that says "not forgotten" counts
    first_token_s: float
    end_s: float
    clock_moved_s: float

    @property
    def told_at(self) -> float:
        return self.asked_at + self.first_token_s


class Caller:
    """Asks at `base_url`, as `OPENAI_BASE_URL` has it: with `/v1` at its end or without."""

    def __init__(self, base_url: str, *, key: str | None = None, patience_s: float = 900.0) -> None:
        parts = urlsplit(base_url if "//" in base_url else f"//{base_url}", scheme="http")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"base_url: {base_url!r} is no http or https address, such as http://127.0.0.1:8000/v1")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._root = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._patience_s = patience_s
        self.sends_keep_alive = True  # until somebody refuses a request for it

    def ask(self, model: str, prompt: str, *, tokens: int, leave: bool = False) -> Heard:
        """Stream a chat completion.  `leave`: the model may go once it has answered.

        Raises NotAnswered for whatever is no answer: a refusal, an error in the stream, a broken connection.
        """
        try:
            return self._ask(model, prompt, tokens, leave=leave and self.sends_keep_alive)
        except NotAnswered as refused:
            if not (leave and self.sends_keep_alive and refused.status in (400, 422)):
                raise
        self.sends_keep_alive = False  # a server that knows OpenAI's own fields alone: it has its idle time
        return self._ask(model, prompt, tokens, leave=False)

    def status(self, model: str) -> str:
        """What the list says of the model.  Raises NotAnswered, also where it says nothing of sleep."""
        listed = self._json("GET", f"/v1/models/{quote(model, safe='')}")
        status = listed.get("status") if isinstance(listed, dict) else None
        if not isinstance(status, str):
            raise NotAnswered("/v1/models does not say whether a model sleeps (a field `status`)", status=404)
        return status

    def phases(self, model: str) -> dict[str, Any] | None:
        """The server's own word on its start; None where it says none."""
        try:
            said = self._json("GET", "/phases", {"X-Tenure-Model": model})
        except NotAnswered:
            return None
        return said if isinstance(said, dict) and "process_started_at" in said else None

    def rest(self, model: str, prompt: str, within_s: float) -> float:
        """Wait until the model sleeps, asking it to where it is ready.  Seconds waited.  Raises TimeoutError.

        The pauses are plain sleeps: a study that never looks for a stop is interrupted where it stands.
        """
        began, asked, status = time.monotonic(), False, "unknown"
        while True:
            try:
                status = self.status(model)
            except NotAnswered as away:
                if away.fatal:
                    raise
            if status in ("asleep", "failed"):
                return time.monotonic() - began
            if status == "ready" and not asked and self.sends_keep_alive:
                asked = True
                try:
                    self.ask(model, prompt, tokens=1, leave=True)
                except NotAnswered as refused:
                    if refused.fatal:
                        raise
            if time.monotonic() - began > within_s:
                raise TimeoutError(
                    f"{model} is still {status} after {within_s:g} s: nothing here puts it to sleep; give it a shorter idle time"
                )
            time.sleep(POLL_S)

    def _ask(self, model: str, prompt: str, tokens: int, *, leave: bool) -> Heard:
        body = {
            "model": model, "messages": [{"role": "user", "content": prompt}], "stream": True, "max_tokens": tokens,
            "temperature": 0,
        }  # fmt: skip
        if leave:
            body["keep_alive"] = 0
        data = json.dumps(body).encode()
        offset, began = _wall_ahead(), time.monotonic()
        asked_at = began + offset
        with self._sent("POST", "/v1/chat/completions", data, {"Content-Type": "application/json"}) as response:
            head_s = time.monotonic() - began
            first_byte_s = first_token_s = None
            for line in _lines(response):
                now = time.monotonic() - began
                first_byte_s = now if first_byte_s is None else first_byte_s
                if first_token_s is None and _says_something(line):
                    first_token_s = now
            end_s = time.monotonic() - began
        if first_byte_s is None or first_token_s is None:
            raise NotAnswered("the stream ended without a token")
        moved = _wall_ahead() - offset
        return Heard(
            asked_at=asked_at, head_s=head_s, first_byte_s=first_byte_s, first_token_s=first_token_s, end_s=end_s,
            clock_moved_s=moved,
        )  # fmt: skip

    def _json(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> Any:
        with self._sent(method, path, None, headers or {}) as response:
            try:
                return json.loads(response.read())
            except ValueError:
                raise NotAnswered(f"{path} answered no JSON") from None

    @contextmanager
    def _sent(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer, if it is one.  A connection for each request: one that was kept open would be warm."""
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=CONNECT_S)
        try:
            connection.connect()
            connection.sock.settimeout(self._patience_s)
            connection.request(method, self._root + path, data, {**self._headers, **headers})
            response = connection.getresponse()
            if response.status >= 300:
                raise NotAnswered(
                    f"{method} {path}: {response.status} {_message(response.read(65536))}",
                    status=response.status,
                    retry_after_s=_seconds(response.headers.get("Retry-After")),
                )
            yield response
        except (OSError, http.client.HTTPException) as problem:
            raise NotAnswered(f"{method} {path}: {problem or type(problem).__name__}") from problem
        finally:
            connection.close()


def _wall_ahead() -> float:
    """By how much the wall clock is ahead of the monotonic one: the tightest of some looks, for a busy machine may have
    another turn between two of them, and that is no clock that was set."""
    looks = []
    for _ in range(5):
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        looks.append((after - before, wall - (before + after) / 2))
    return min(looks)[1]


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Line by line as they come, never waiting for more than there is; an empty one where a piece ends in the middle."""
    rest = b""
    while piece := response.read1(65536):
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.rstrip(b"\r") for line in whole)
        if not whole:
            yield b""
    if rest:
        yield rest


def _says_something(line: bytes) -> bool:
    """Does this line of a stream carry text?  A role alone is no token, nor is a comment.  Raises NotAnswered."""
    if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
        return False
    try:
        event = json.loads(line[5:])
    except ValueError:
        raise NotAnswered(f"the stream says {line[:200]!r}, which is no JSON") from None
    if "error" in event:
        raise NotAnswered(f"an error in the stream: {_message(line[5:])}")
    return any((choice.get("delta") or {}).get("content") or choice.get("text") for choice in event.get("choices", ()))


def _message(body: bytes) -> str:
    try:
        error = json.loads(body)["error"]
        return str(error["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace").strip()


def _seconds(text: str | None) -> float:
    try:
        return min(max(float(text or 1), 0.1), 60.0)
    except ValueError:
        return 1.0
