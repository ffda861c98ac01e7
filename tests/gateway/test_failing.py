"""Servers that load too long, die, lie, or find a stranger on their port: a clear error each time, and no half-open state."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from .conftest import SERVER, Home, alive, eventually, lines


def test_loading_may_take_longer_than_the_idle_time(home: Home) -> None:
    home.declare("small", "--load", "1.8", idleAfter="1s")
    home.reload()
    assert home.chat("small").status == 200


def test_a_start_that_takes_too_long_is_told_and_the_next_request_may_try_again(home: Home, tmp_path: Path) -> None:
    home.declare("small", "--load", "60", "--starts", str(tmp_path / "starts"), startTimeout="1s")
    home.reload()
    refused = home.chat("small")
    assert (refused.status, refused.error["code"]) == (503, "model_failed")
    assert "StartTimeout: it was not ready within 1 s" in refused.error["message"]
    assert int(refused.headers["retry-after"]) >= 1
    row = home.until("small", "failed")
    assert (row["job_id"], row["port"]) == (None, None)
    home.declare("small", "--starts", str(tmp_path / "starts"))
    home.reload()
    answer = eventually(lambda: (a := home.chat("small")).status == 200 and a)  # a backoff, and no restart
    assert str(answer.json["pid"]) == (tmp_path / "starts").read_text().split()[-1]


def test_a_server_that_dies_while_loading_is_told_with_its_log(home: Home) -> None:
    home.declare("small", "--load", "0.3", "--die-loading", "7")
    home.reload()
    refused = home.chat("small")
    assert (refused.status, refused.error["code"]) == (503, "model_failed")
    assert "ended by itself while it was loading" in refused.error["message"]
    assert "tenure logs" in refused.error["message"]
    home.until("small", "failed")
    eventually(lambda: home.model("small")["held"] == 0)


@pytest.mark.parametrize("children", ["0", "2"])
def test_who_asks_the_moment_a_server_has_died_is_answered_by_the_next_one(home: Home, children: str) -> None:
    home.declare("small", "--children", children)
    home.reload()
    pid = home.chat("small").json["pid"]
    before = home.diary()[-1]["id"]
    os.kill(pid, signal.SIGKILL)
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: home.chat("small"), range(20)))
    assert [answer.status for answer in answers] == [200] * 20, [answer.body for answer in answers]
    (now,) = {answer.json["pid"] for answer in answers}
    assert now != pid
    changed = [e for e in home.events("ModelChanged") if e["id"] > before and e["data"]["model"] == "small"]
    assert "failed" in [e["data"]["state"] for e in changed]


def test_a_connection_that_is_dropped_before_a_byte_is_tried_once_more(home: Home) -> None:
    home.declare("small", "--drop", "1")
    home.declare("worse", "--drop", "100", queueName="default")
    home.reload()
    assert home.chat("small").status == 200
    refused = home.chat("worse")
    assert (refused.status, refused.error["code"]) == (502, "upstream_failed")


def test_a_stream_whose_server_dies_ends_with_an_error(home: Home) -> None:
    home.declare("small")
    home.reload()
    answer = home.chat("small", stream=True, die_at=2)
    events = [line for line in answer.body.split(b"\n\n") if line]
    assert json.loads(events[1].removeprefix(b"data: "))["choices"][0]["delta"]["content"] == "word1 "
    assert json.loads(events[-1].removeprefix(b"data: "))["error"]["code"] == "upstream_failed"
    assert b"[DONE]" not in answer.body
    home.until("small", "failed", "asleep")


def test_ready_and_not_answering_is_the_servers_own_error_passed_on(home: Home) -> None:
    home.declare("small", "--lie")
    home.reload()
    answer = home.chat("small")
    assert answer.status == 503
    assert answer.error["message"] == "still loading"


def test_a_stranger_on_the_port_is_named_and_never_asked(home: Home, tmp_path: Path) -> None:
    """The server takes its time; somebody else binds its port and says 200 to everything.  Another port is tried, once."""
    stranger = (
        "import http.server as h, sys\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b'ok')\n"
        "h.HTTPServer(('127.0.0.1', int(sys.argv[1])), H).serve_forever()\n"
    )
    home.declare(
        "small",
        command=[
            "sh",
            "-c",
            f"echo {{port}} >> {tmp_path}/port; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exec {' '.join(SERVER)}",
        ],
    )
    home.reload()
    others: list[subprocess.Popen[bytes]] = []

    def taken(count: int) -> None:
        """Somebody sits on the port of its next try, once it has one."""
        ports = eventually(lambda: (tmp_path / "port").exists() and len(p := (tmp_path / "port").read_text().split()) == count and p)  # fmt: skip
        others.append(subprocess.Popen([sys.executable, "-c", stranger, ports[-1]]))

    with ThreadPoolExecutor(2) as pool:
        try:
            first, second = pool.submit(home.chat, "small"), None
            taken(1)
            row = eventually(lambda: (r := home.model("small"))["wakes"] == 2 and r)
            assert f"pid {others[0].pid}" in row["last_wake"]["cause"]
            (tmp_path / "go").touch()
            assert first.result().status == 200, "who waited for it has its answer from the other port"
            (tmp_path / "go").unlink()
            home.tenure("models", "sleep", "small")
            home.until("small", "asleep")
            second = pool.submit(home.chat, "small")
            taken(3)
            taken(4)
            refused = second.result()
        finally:
            for other in others:
                other.kill()
                other.wait()
    assert (refused.status, refused.error["code"]) == (503, "model_failed")
    assert f"pid {others[2].pid}" in refused.error["message"]
    assert home.model("small")["reason"] == "PortTaken"


def test_workers_that_outlive_their_server_keep_its_share_until_they_are_ended(home: Home, tmp_path: Path) -> None:
    home.declare("small", "--children", "2", stopTimeout="2s")
    home.reload()
    answer = home.chat("small")
    job = answer.headers["x-tenure-run"].partition(".")[0]
    children = [int(line.split()[1]) for line in home.tenure("logs", job).splitlines() if line.startswith("child")]
    assert len(children) == 2
    os.kill(answer.json["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 30
    while True:
        row = home.model("small")  # first: who is there afterwards was there then
        if not any(alive(child) for child in children):
            break
        assert row["state"] not in ("asleep", "failed"), "its share would be given away"
        assert time.monotonic() < deadline
    assert home.until("small", "failed", "asleep")["job_id"] is None


def test_a_slow_sleeper_finishes_what_is_in_flight(home: Home, tmp_path: Path) -> None:
    home.declare("small", "--chunk-delay", "0.2", stopTimeout="40s")
    home.reload()
    home.chat("small", chunks=1)
    connection = home.connect()
    body = json.dumps({"model": "small", "stream": True, "chunks": 500, "until": str(tmp_path / "enough")})
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.readline()
    eventually(lambda: home.model("small")["in_flight"] == 1)
    home.tenure("models", "sleep", "small")
    home.until("small", "draining")
    (tmp_path / "enough").touch()
    rest = answer.read()
    connection.close()
    assert rest.endswith(b"data: [DONE]\n\n")
    home.until("small", "asleep")


@pytest.mark.parametrize("encoding", ["gzip, br", "identity"])
def test_answers_are_never_packed(home: Home, tmp_path: Path, encoding: str) -> None:
    home.declare("small", "--seen", str(tmp_path / "seen"))
    home.reload()
    answer = home.chat(
        "small", headers={"Accept-Encoding": encoding, "Authorization": "Bearer sk-secret", "Cookie": "a=b"}
    )
    assert "content-encoding" not in answer.headers
    sent = lines(tmp_path / "seen")[-1]["headers"]
    assert sent["accept-encoding"] == "identity"
    assert not {"authorization", "cookie"} & set(sent)
    assert "sk-secret" not in (home.path / "daemon" / "gateway.log").read_text()
    assert "sk-secret" not in (home.path / "gateway" / "requests.jsonl").read_text()


def test_large_bodies_old_clients_and_careful_ones(home: Home) -> None:
    home.declare("small")
    home.reload()
    big = json.dumps({"model": "small", "messages": [], "image": "x" * 20_000_000}).encode()
    assert home.ask("POST", "/v1/chat/completions", big).json["size"] == len(big)
    at = urlsplit(home.url)
    body = b'{"model": "small", "stream": true}'
    head = b"POST /v1/chat/completions HTTP/%s\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n"
    with socket.create_connection((at.hostname, at.port), timeout=30) as client:
        client.sendall(head % (b"1.0", len(body), b"") + body)
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert b"chunked" not in answer.lower()
    assert answer.endswith(b"data: [DONE]\n\n")
    with socket.create_connection((at.hostname, at.port), timeout=30) as client:
        client.sendall(head % (b"1.1", len(body), b"Expect: 100-continue\r\n"))
        assert client.recv(65536).startswith(b"HTTP/1.1 100")
        client.sendall(body)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
