"""What the model servers of ours promise, shown with a model that takes a moment and knows one word."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ..gateway.conftest import eventually

SERVER = """
import sys, time
from tenure.testing.serving import Phases, Refusal, serve

def load():
    if "--broken" in sys.argv:
        raise RuntimeError("no such file: weights")
    sys.stdin.readline()
    return {"/v1/chat/completions": chat}

def chat(asked, send):
    for number in range(asked["words"]):
        time.sleep(0.05)
        if number == asked.get("wrong"):
            raise Refusal("that is one word too many")
        if send({"choices": [{"delta": {"content": "well "}}]}):
            print("left", flush=True)
            return None
    return None if asked["words"] else {"choices": []}

phases = Phases(main_at=time.time())
phases.done("imports_done_at")
serve(int(sys.argv[1]), name="small", phases=phases, load=load)
"""


@contextmanager
def free_port() -> Iterator[int]:
    """A port that the kernel gives to nobody else meanwhile; a server that reuses addresses may listen on it."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


@contextmanager
def served(*words: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    with free_port() as port, subprocess.Popen(
        [sys.executable, "-c", SERVER, str(port), *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield port, process
        finally:
            process.kill()


def ask(port: int, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def loaded(port: int, process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    eventually(lambda: listens(port) and ask(port, "GET", "/health")[0] == 200)


def test_healthy_is_loaded_and_the_phases_say_when() -> None:
    with served() as (port, process):
        eventually(lambda: listens(port))
        assert ask(port, "GET", "/health")[0] == 503
        assert ask(port, "POST", "/v1/chat/completions", {"words": 1})[0] == 503
        told = json.loads(ask(port, "GET", "/phases")[1])
        assert told["pid"] == process.pid
        assert {name for name, at in told.items() if at is None} == {
            "load_done_at", "compile_done_at", "ready_at", "first_token_at",
        }  # fmt: skip
        assert 0 <= told["main_at"] - told["process_started_at"] < 20
        loaded(port, process)
        assert json.loads(ask(port, "GET", "/phases")[1])["first_token_at"] is None
        ask(port, "POST", "/v1/chat/completions", {"words": 2})
        again = json.loads(ask(port, "GET", "/phases")[1])
        assert {name for name, at in again.items() if at is None} == {"compile_done_at"}
        assert abs(again["process_started_at"] - told["process_started_at"]) < 0.02
        ask(port, "POST", "/v1/chat/completions", {"words": 2})
        assert json.loads(ask(port, "GET", "/phases")[1])["first_token_at"] == again["first_token_at"], "the first only"


def test_a_load_that_fails_ends_the_process_with_its_reason() -> None:
    with served("--broken") as (_, process):
        _, said = process.communicate(timeout=20)
        assert process.returncode == 1
        assert "no such file: weights" in said


def test_what_is_being_answered_ends_after_sigterm_and_nothing_new_begins() -> None:
    with served() as (port, process), ThreadPoolExecutor(1) as pool:
        loaded(port, process)
        answer = pool.submit(ask, port, "POST", "/v1/chat/completions", {"words": 20})
        eventually(lambda: json.loads(ask(port, "GET", "/phases")[1])["first_token_at"] is not None)
        process.send_signal(signal.SIGTERM)
        eventually(lambda: not listens(port))
        status, body = answer.result()
        assert (status, body.count(b"well ")) == (200, 20)
        assert body.endswith(b"data: [DONE]\n\n")
        assert process.wait(timeout=20) == 0


def test_refusals_before_and_within_a_stream() -> None:
    with served() as (port, process):
        loaded(port, process)
        for method, path, body, status in (
            ("POST", "/v1/chat/completions", [1], 400),
            ("POST", "/v1/chat/completions", {"words": 3, "wrong": 0}, 400),
            ("POST", "/v1/embeddings", {}, 404),
            ("POST", "/v1/chat/completions", None, 411),
            ("GET", "/favicon.ico", None, 404),
        ):
            said = ask(port, method, path, body) if body is not None or method == "GET" else _without_length(port, path)
            assert said[0] == status, (path, body, said)
            assert set(json.loads(said[1])["error"]) == {"message", "type", "param", "code"}
        status, events = ask(port, "POST", "/v1/chat/completions", {"words": 3, "wrong": 2})
        assert status == 200
        *_, error, done, rest = events.split(b"\n\n")
        assert json.loads(error.removeprefix(b"data: "))["error"]["message"] == "that is one word too many"
        assert (done, rest) == (b"data: [DONE]", b"")


def _without_length(port: int, path: str) -> tuple[int, bytes]:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
        raw.sendall(f"POST {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        answer = http.client.HTTPResponse(raw)
        answer.begin()
        return answer.status, answer.read()


def test_a_client_that_leaves_is_noticed_at_the_next_word() -> None:
    with served() as (port, process):
        loaded(port, process)
        heard = threading.Event()
        assert process.stdout is not None
        out = process.stdout
        listener = threading.Thread(target=lambda: [heard.set() for line in out if line == "left\n"], daemon=True)
        listener.start()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", "/v1/chat/completions", json.dumps({"words": 400}))
        answer = connection.getresponse()
        assert answer.readline().startswith(b"data: ")
        answer.close()
        connection.close()
        assert heard.wait(20)
        process.kill()
        listener.join(timeout=5)


def test_the_server_with_knobs_holds_its_memory_and_so_do_its_children() -> None:
    size = 96 << 20
    command = [sys.executable, "-P", "-m", "tenure.testing.model_server", "--memory", str(size), "--children", "1"]
    with (
        free_port() as port,
        subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        said = [process.stdout.readline().split() for _ in range(4)]
        child = next(int(line[1]) for line in said if line[0] == "child")
        try:
            if ["holds", str(size), "bytes:", "card"] not in said:  # here the machine's own memory stands for it
                assert _resident(process.pid) >= size
                assert _resident(child) >= size
            process.kill()
            process.wait(timeout=10)
            os.kill(child, signal.SIGTERM)
            assert Path(f"/proc/{child}/cmdline").read_bytes(), "the child lives on"
        finally:
            os.kill(child, signal.SIGKILL)


def _resident(pid: int) -> int:
    """Bytes of memory that a process really has."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) << 10
