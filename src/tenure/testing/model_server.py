"""A small OpenAI-compatible server with knobs, for cases that a real one shows only on a bad day.

Standard library only, and quick to start.  `python -P -m tenure.testing.model_server --port N [knobs]`; what it answers
names the model that it was asked for and its own pid, so that a test knows who answered.  `/phases` says when each step
of its start was done, as any model server here does: unix seconds, null for what has not happened.
"""

from __future__ import annotations

import time

MAIN_AT = time.time()  # before the other imports, whose time is one of the phases

# ruff: noqa: E402
import argparse
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tenure.testing.serving import process_started_at

IMPORTS_DONE_AT = time.time()

__all__ = ["main"]

CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"


def main() -> None:
    knobs = _knobs()
    if knobs.starts is not None:
        with knobs.starts.open("a") as file:
            file.write(f"{os.getpid()}\n")
    if knobs.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=_leave, args=(knobs,), daemon=True).start())
    for _ in range(knobs.children):
        holding = ["-P", "-m", "tenure.testing.holding", str(knobs.memory)]
        child = subprocess.Popen([sys.executable, *(holding if knobs.memory else ["-S", "-c", CHILD])])
        print(f"child {child.pid}", flush=True)
    compiling = _compiling(knobs)
    _Handler.knobs, _Handler.ready_at = knobs, time.monotonic() + knobs.load + compiling
    _Handler.loaded_at = time.time() + knobs.load
    _Handler.compiled_at = _Handler.loaded_at + compiling if knobs.compile else None
    if knobs.listen_late:
        time.sleep(knobs.load + compiling)
    if knobs.die_loading:
        threading.Timer(knobs.load, os._exit, (knobs.die_loading,)).start()
    if knobs.memory:
        from tenure.testing.holding import hold

        print(f"holds {knobs.memory} bytes: {hold(knobs.memory)}", flush=True)
    server = _Server(("127.0.0.1", knobs.port), _Handler)
    print(f"listening on {knobs.port}, pid {os.getpid()}", flush=True)
    server.serve_forever()


def _knobs() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A model server with knobs.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--load", type=float, default=0.0, help="seconds until /health says 200")
    parser.add_argument("--load-until", type=Path, metavar="FILE", help="it is not loaded before that file is there")
    parser.add_argument(
        "--compile", type=float, default=0.0, help="seconds more, but for those whose cache directory is kept"
    )
    parser.add_argument("--no-phases", action="store_true", help="say nothing at /phases")
    parser.add_argument("--listen-late", action="store_true", help="listen only once it is loaded")
    parser.add_argument("--die-loading", type=int, default=0, metavar="CODE", help="exit with it when loaded")
    parser.add_argument("--lie", action="store_true", help="/health says 200, every inference 503")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--leave-after", type=float, default=0.0, help="seconds between SIGTERM and the exit")
    parser.add_argument("--children", type=int, default=0, help="processes that ignore SIGTERM and outlive it")
    parser.add_argument(
        "--memory",
        type=int,
        default=0,
        metavar="BYTES",
        help="held by it and by each child, on a card where there is one",
    )
    parser.add_argument("--chunk-delay", type=float, default=0.0, help="seconds before each chunk of a stream")
    parser.add_argument("--drop", type=int, default=0, help="so many first inferences end without a byte")
    parser.add_argument("--starts", type=Path, help="a file that gets a line with the pid at each start")
    parser.add_argument("--seen", type=Path, help="a file that gets a line of JSON for each request")
    return parser.parse_args()


def _compiling(knobs: argparse.Namespace) -> float:
    """Seconds that it compiles: none where an earlier start has left its work in the cache directory."""
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if not knobs.compile or folder is None:
        return float(knobs.compile)
    done = Path(folder) / "compiled"
    if done.exists():
        return 0.0
    done.parent.mkdir(parents=True, exist_ok=True)
    threading.Timer(knobs.load + knobs.compile, done.touch).start()
    return float(knobs.compile)


def _leave(knobs: argparse.Namespace) -> None:
    time.sleep(knobs.leave_after)
    os._exit(0)


def _is_there(asked: dict[str, Any]) -> bool:
    """The file for which an answer goes on, where the request names one in `until`."""
    return "until" in asked and Path(asked["until"]).exists()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a head and a first chunk in two writes: the second would wait 40 ms for an ACK
    knobs: argparse.Namespace
    ready_at: float
    loaded_at: float
    compiled_at: float | None
    first_token_at: float | None = None
    dropped = 0

    def do_GET(self) -> None:
        self._note(b"")
        if self.path == "/health":
            ready = self._is_loaded() and not self.knobs.die_loading  # it dies before it is
            self._json(200 if ready else 503, {"status": "ok"})
        elif self.path.startswith("/pid"):
            self._json(200, {"pid": os.getpid()})
        elif self.path == "/phases" and not self.knobs.no_phases:
            self._json(200, self._phases())
        else:
            self._json(
                404, {"error": {"message": "not here", "type": "invalid_request_error", "param": None, "code": None}}
            )

    def do_POST(self) -> None:
        body = self._body()
        self._note(body)
        if not self._is_loaded() or self.knobs.lie:
            self._json(
                503, {"error": {"message": "still loading", "type": "server_error", "param": None, "code": None}}
            )
            return
        if _Handler.dropped < self.knobs.drop:
            _Handler.dropped += 1
            self._cut()
            return
        asked: dict[str, Any] = {}
        if self.headers.get_content_type() == "application/json":
            asked = json.loads(body or b"{}")
        if asked.get("stream"):
            self._stream(asked)
        elif self.path.endswith("/embeddings"):
            data = [{"object": "embedding", "index": 0, "embedding": [0.25, 0.5]}]
            self._json(200, {"object": "list", "data": data, "model": asked.get("model"), "usage": {"prompt_tokens": 1, "total_tokens": 1}})  # fmt: skip
        else:
            time.sleep(float(asked.get("think", 0)))
            while "until" in asked and not _is_there(asked):
                time.sleep(0.02)
            _Handler.first_token_at = _Handler.first_token_at or time.time()
            self._json(200, self._completion(asked, len(body)))

    def _is_loaded(self) -> bool:
        return time.monotonic() >= self.ready_at and time.time() >= self._may_load_at()

    def _may_load_at(self) -> float:
        """When the file of `--load-until` came."""
        gate: Path | None = self.knobs.load_until
        if gate is None:
            return 0.0
        return gate.stat().st_mtime if gate.exists() else math.inf

    def _phases(self) -> dict[str, float | int | None]:
        now, gate_at = time.time(), self._may_load_at()
        loaded_at = max(self.loaded_at, gate_at)
        ready_at = max(self.compiled_at or loaded_at, gate_at)
        return {
            "pid": os.getpid(), "process_started_at": process_started_at(), "main_at": MAIN_AT,
            "imports_done_at": IMPORTS_DONE_AT, "load_done_at": loaded_at if now >= loaded_at else None,
            "compile_done_at": self.compiled_at if self.compiled_at is not None and now >= self.compiled_at else None,
            "ready_at": ready_at if now >= ready_at else None, "first_token_at": self.first_token_at,
        }  # fmt: skip

    def _completion(self, asked: dict[str, Any], size: int) -> dict[str, Any]:
        message = {"role": "assistant", "content": f"Paris, says {os.getpid()}"}
        return {
            "id": "c-1", "object": "chat.completion", "created": 1, "model": asked.get("model"), "pid": os.getpid(), "size": size,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
        }  # fmt: skip

    def _stream(self, asked: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        count = int(asked.get("chunks", 5))
        try:
            for number in range(count):
                time.sleep(self.knobs.chunk_delay)
                if _is_there(asked):
                    break
                if asked.get("die_at") == number:
                    os._exit(9)
                _Handler.first_token_at = _Handler.first_token_at or time.time()
                delta = {"content": f"word{number} "}
                chunk = {
                    "id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": asked.get("model"), "sent": time.monotonic(),
                    "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
                }  # fmt: skip
                self._chunk(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")
        except (BrokenPipeError, ConnectionResetError):
            self._say({"left": True, "path": self.path})
            self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _json(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().strip() or b"0", 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _note(self, body: bytes) -> None:
        if self.path != "/health":
            self._say(
                {"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}, "size": len(body)}
            )

    def _say(self, line: dict[str, Any]) -> None:
        if self.knobs.seen is not None:
            with self.knobs.seen.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: its log is read by people who look for what matters."""


if __name__ == "__main__":
    main()
