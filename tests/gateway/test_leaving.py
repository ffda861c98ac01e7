"""A model that is preempted: requests in flight end or are told, new ones are held, and it comes back for them."""

from __future__ import annotations

import http.client
import json
import threading
import time
from pathlib import Path
from typing import Any

from .conftest import PATIENCE_S, Home, eventually, opened


def stream(home: Home, chunks: int, **more: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = home.connect()
    body = json.dumps({"model": "small", "stream": True, "chunks": chunks, **more})
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.readline()
    return connection, answer


def test_a_stream_outlives_a_preemption_and_who_asks_meanwhile_is_held(home: Home, tmp_path: Path) -> None:
    home.declare("small", "--chunk-delay", "0.2", stopTimeout="40s")
    home.reload()
    run = home.chat("small", chunks=1).headers["x-tenure-run"]
    connection, answer = stream(home, 500, until=str(tmp_path / "enough"))
    job = home.submit("sleep", "0.5")  # at once: the gateway may not have reported yet
    home.until("small", "draining")
    later: list[Any] = []
    asks = threading.Thread(target=lambda: later.append(home.chat("small")))
    asks.start()
    eventually(lambda: home.model("small")["held"] == 1)
    assert home.rest("GET", f"/jobs/{job}")["state"] == "queued"
    (tmp_path / "enough").touch()
    assert answer.read().endswith(b"data: [DONE]\n\n")
    connection.close()
    asks.join(PATIENCE_S)
    assert later[0].status == 200
    assert later[0].headers["x-tenure-run"] == f"{run.partition('.')[0]}.2"
    assert home.rest("GET", f"/jobs/{job}")["outcome"] == "completed"


def test_what_does_not_end_in_time_is_told_so_in_its_stream(home: Home) -> None:
    home.declare("small", "--chunk-delay", "0.2", stopTimeout="2s")
    home.reload()
    home.chat("small", chunks=1)
    connection, answer = stream(home, 500)
    began = time.monotonic()
    job = home.submit("true")
    events = [line for line in answer.read().split(b"\n\n") if line]
    connection.close()
    assert 1.4 < time.monotonic() - began < 15, "its time is used, and does not last for all of its words"
    assert json.loads(events[-1].removeprefix(b"data: "))["error"]["code"] == "upstream_failed"
    eventually(lambda: home.rest("GET", f"/jobs/{job}")["state"] == "ended")


def test_a_daemon_that_is_killed_in_the_middle_of_a_drain(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as home:
        home.declare("small", "--chunk-delay", "0.2", stopTimeout="30s")
        home.reload()
        run = home.chat("small", chunks=1).headers["x-tenure-run"]
        connection, answer = stream(home, 500)
        job = home.submit("true")
        home.until("small", "draining")
        home.kill()
        answer.close()
        connection.close()
        home.up()
        eventually(lambda: home.rest("GET", f"/jobs/{job}")["state"] == "ended")
        first = home.rest("GET", f"/jobs/{run.partition('.')[0]}")["attempts"][0]
        assert (first["outcome"], first["evicted"]["by"]) == ("interrupted", job)


def test_after_a_server_has_died_in_a_stream_nothing_is_half_open(home: Home) -> None:
    home.declare("small")
    home.reload()
    first = home.chat("small")
    cut = home.chat("small", stream=True, die_at=2)
    assert b"upstream_failed" in cut.body
    answer = eventually(lambda: (a := home.chat("small")).status == 200 and a)
    assert answer.headers["x-tenure-run"] != first.headers["x-tenure-run"]
    eventually(lambda: (row := home.model("small"))["in_flight"] == 0 and row["state"] == "ready")
