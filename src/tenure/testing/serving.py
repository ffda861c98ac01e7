"""What small model servers have in common: their doors, their phases, and how they leave.

Promises: it listens at once, and `/health` is 200 only while the model is loaded; a load that fails ends the process with
what went wrong; `/phases` says when each step of the start was done, in unix seconds, null for what has not happened;
after SIGTERM nothing new is taken, what is being answered has `GRACE_S` to end, and the exit is 0.  Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

__all__ = ["Doors", "Json", "Phases", "Refusal", "Send", "process_started_at", "serve"]

Json = dict[str, Any]
Send = Callable[[Json], bool]
"""Sends one chunk of a stream; True: the client has left, and the rest would be for nobody."""
Doors = Mapping[str, Callable[[Json, Send], Json | None]]
"""By path: answers a request with JSON, or with None after having sent it in chunks."""

GRACE_S = 60.0  # a platform has its own `stopTimeout`, and ends it sooner
BODY_BYTES = 16 * 1024 * 1024


class Refusal(Exception):
    """The request is at fault; the client reads why."""


class Phases:
    """When each step of a start was done.  The first time counts."""

    NAMES = ("process_started_at", "main_at", "imports_done_at", "load_done_at", "compile_done_at", "ready_at", "first_token_at")  # fmt: skip

    def __init__(self, *, main_at: float) -> None:
        self._at: dict[str, float | None] = dict.fromkeys(self.NAMES)
        self._at |= {"process_started_at": process_started_at(), "main_at": main_at}

    def done(self, name: str) -> None:
        if self._at[name] is None:
            self._at[name] = time.time()

    def told(self) -> Json:
        return {"pid": os.getpid(), **self._at}


def process_started_at() -> float:
    """Unix seconds, to the clock tick of 10 ms: the kernel counts a process's start from boot."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def serve(port: int, *, name: str, phases: Phases, load: Callable[[], Doors]) -> None:
    """Serve what `load` makes on 127.0.0.1:`port`, until SIGTERM.  Does not return."""
    server = _Server(("127.0.0.1", port), _Handler)
    server.name, server.phases = name, phases
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown, daemon=True).start())

    def loading() -> None:
        try:
            doors = load()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        phases.done("load_done_at")
        phases.done("ready_at")
        server.doors = doors
        print(f"{name} is ready on port {port}, pid {os.getpid()}", flush=True)

    threading.Thread(target=loading, name="loading", daemon=True).start()
    server.serve_forever(poll_interval=0.05)
    server.socket.close()
    end = time.monotonic() + GRACE_S
    while server.answering and time.monotonic() < end:
        time.sleep(0.02)  # each ends within a token or a batch of its own accord; nobody tells of the last one
    print("left on SIGTERM", flush=True)
    os._exit(0)  # threads of a native runtime may be in the middle of something; there is nothing to save


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    name = ""
    phases: Phases
    doors: Doors | None = None

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self._counting = threading.Lock()
        self.answering = 0

    def count(self, change: int) -> None:
        with self._counting:
            self.answering += change

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        ready = self.server.doors is not None
        match self.path.partition("?")[0]:
            case "/health":
                self._json(200 if ready else 503, {"status": "ok" if ready else "loading model"})
            case "/phases":
                self._json(200, self.server.phases.told())
            case "/v1/models":
                self._json(200, {"object": "list", "data": [{"id": self.server.name, "object": "model", "created": 0, "owned_by": "tenure"}]})  # fmt: skip
            case _:
                self._error(404, f"there is nothing at {self.path}")

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        length = self.headers.get("Content-Length") or ""
        if not length.isdecimal() or int(length) > BODY_BYTES:
            self.close_connection = True
            self._error(411 if not length else 413, f"a body of at most {BODY_BYTES} bytes with its Content-Length, please")  # fmt: skip
            return
        body = self.rfile.read(int(length))
        if self.server.doors is None:
            self._error(503, "the model is still loading")
        elif path not in self.server.doors:
            self._error(404, f"{self.server.name} answers {', '.join(self.server.doors)}, not {path}")
        else:
            self.server.count(+1)
            try:
                self._answer(self.server.doors[path], body)
            finally:
                self.server.count(-1)

    def _answer(self, door: Callable[[Json, Send], Json | None], body: bytes) -> None:
        self._streaming = self._left = False
        try:
            asked = json.loads(body)
            if not isinstance(asked, dict):
                raise Refusal("the body is no JSON object")
            answer = door(asked, self._send)
        except (Refusal, ValueError) as refusal:
            if self._streaming:
                self._send({"error": _error_of(str(refusal), 400)})
            else:
                self._error(400, str(refusal))
                return
        else:
            if answer is not None:
                self.server.phases.done("first_token_at")
                self._json(200, answer)
                return
        if self._streaming and not self._left:
            self._piece(b"data: [DONE]\n\n")
            self._piece(b"")

    def _send(self, chunk: Json) -> bool:
        if not self._streaming:
            self._streaming = True
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Cache-Control", "no-cache")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
        if any((choice.get("delta") or {}).get("content") or choice.get("text") for choice in chunk.get("choices", ())):
            self.server.phases.done("first_token_at")
        try:
            self._piece(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        except OSError:
            self._left = self.close_connection = True
        return self._left

    def _piece(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _error(self, status: int, message: str) -> None:
        self._json(status, {"error": _error_of(message, status)})

    def _json(self, status: int, value: Json) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: its log is read by people who look for what matters."""


def _error_of(message: str, status: int) -> Json:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"message": message, "type": kind, "param": None, "code": None}
