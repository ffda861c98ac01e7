"""The diary over SSE: each event once, in order, from any id on, to many clients of any speed."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from tenure.portal import stream

if TYPE_CHECKING:
    from .conftest import Door


class Stream:
    """One client of the stream, reading messages as a browser does."""

    def __init__(self, door: Door, query: str = "", last: int | None = None) -> None:
        self.connection = door.unix(timeout=20)
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": str(last)} if last is not None else {})
        self.connection.request("GET", "/api/v1/events" + query, headers=headers)
        self.answer: http.client.HTTPResponse = self.connection.getresponse()
        assert self.answer.status == 200
        assert self.answer.getheader("content-type") == "text/event-stream; charset=utf-8"

    def next(self) -> dict[str, Any]:
        fields: dict[str, str] = {}
        while True:
            line = self.answer.readline().decode().rstrip("\n")
            if line.startswith(":") or line.startswith("retry:"):
                continue
            if not line:
                if fields.get("data"):
                    event: dict[str, Any] = json.loads(fields["data"])
                    assert (int(fields["id"]), fields["event"]) == (event["id"], event["kind"])
                    return event
                continue
            name, _, value = line.partition(": ")
            fields[name] = value

    def until(self, kind: str, job: str | None = None) -> list[dict[str, Any]]:
        events = []
        while True:
            events.append(self.next())
            if events[-1]["kind"] == kind and job in (None, events[-1]["job_id"]):
                return events

    def close(self) -> None:
        self.answer.close()
        self.connection.close()


def diary(door: Door, after: int = 0) -> list[int]:
    events, cursor = [], after
    while batch := door.ask("GET", f"/api/v1/events?after={cursor}&limit=500").json:
        events += [event["id"] for event in batch]
        cursor = events[-1]
    return events


def test_a_stream_begins_with_what_happens_next(door: Door) -> None:
    before = diary(door)[-1]
    listening = Stream(door)
    job = door.submit("true")
    events = listening.until("JobEnded", job)
    assert events[0]["id"] > before
    assert [event["kind"] for event in events if event["job_id"] == job and event["kind"].startswith("Job")][:1] == [
        "JobSubmitted"
    ]
    listening.close()


def test_last_event_id_resumes_without_loss_or_repetition(door: Door) -> None:
    start = diary(door)[-1]
    listening = Stream(door, f"?after={start}")
    seen: list[int] = []
    jobs = [door.submit("true") for _ in range(6)]
    for job in jobs:
        for _ in range(3):
            seen.append(listening.next()["id"])
        listening.close()
        listening = Stream(door, last=seen[-1])
        door.wait(job)
    last = door.submit("true")
    door.wait(last)
    while seen[-1] < diary(door, start)[-1]:
        seen.append(listening.next()["id"])
    listening.close()
    assert seen == diary(door, start)[: len(seen)]


def test_a_filter_by_job_knows_an_arrays_tasks(door: Door) -> None:
    other = door.submit("sleep", "0.3")
    array = door.ask("POST", "/api/v1/jobs", {"argv": ["true"], "array": "1-3"}).json["id"]
    door.wait(array)
    door.wait(other)
    listening = Stream(door, f"?after=0&job={array}")
    events = []
    while sum(event["kind"] == "JobEnded" for event in events) < 3:
        events.append(listening.next())
    listening.close()
    assert {event["job_id"] for event in events} == {f"{array}_{n}" for n in (1, 2, 3)}

    single = Stream(door, f"?after=0&job={other}")
    assert {event["job_id"] for event in single.until("JobEnded")} == {other}
    single.close()


def test_the_end_of_a_job_is_seen_at_once(door: Door) -> None:
    """By news of it: the quickest of some, where the machine has a moment to spare."""
    listening, late = Stream(door), []
    for _ in range(5):
        event = listening.until("JobEnded", door.submit("true"))[-1]
        late.append(time.time() - datetime.fromisoformat(event["at"]).timestamp())
    listening.close()
    assert min(late) < 1, late


def test_clients_that_read_nothing_harm_nobody(door: Door) -> None:
    """Forty of them ask for everything and take nothing, with small windows; another still hears at once."""
    stuck = []
    for _ in range(40):
        connection = door.unix()
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.sock.sendall(b"GET /api/v1/events?after=0&watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        stuck.append(connection)
    listening = Stream(door)
    for _ in range(3):
        job = door.submit("true")
        assert listening.until("JobEnded", job)
    listening.close()
    for connection in stuck:
        connection.close()
    assert door.ask("GET", "/healthz").status == 200


def test_a_reader_that_fell_behind_reads_on_from_the_ledger(door: Door) -> None:
    """It takes nothing while more happens than its place in memory holds; then it hears all of it, once and in order."""
    start = diary(door)[-1]
    listening = Stream(door, f"?after={start}")
    assert door.ask("POST", "/api/v1/jobs", {"argv": ["true"], "array": "1-1500", "hold": True}).status == 201
    last = door.submit("true")
    door.wait(last)  # everybody else is served meanwhile
    heard = [event["id"] for event in listening.until("JobEnded", last)]
    listening.close()
    assert len(heard) > 1500
    assert heard == diary(door, start)[: len(heard)]


def test_one_that_takes_nothing_for_too_long_is_cut_off(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "STALL_S", 0.2)
    wordy = {"argv": ["true"], "name": "n" * 900, "array": "1-800", "hold": True}  # more than the sockets hold
    assert door.ask("POST", "/api/v1/jobs", wordy).status == 201
    connection = door.unix()
    connection.connect()
    connection.sock.sendall(b"GET /api/v1/events?after=0&watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    cut = select.poll()
    cut.register(connection.sock, select.POLLRDHUP)
    assert cut.poll(20_000)  # without taking anything
    rest = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.sock.recv(1 << 20):
            rest += piece
    assert b"event: JobSubmitted" in rest
    assert not rest.endswith(b"0\r\n\r\n")
    connection.close()


def test_a_quiet_stream_shows_signs_of_life(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.1)
    connection = door.unix()
    connection.request("GET", "/api/v1/events?watch=1&job=99999999")
    answer = connection.getresponse()
    lines = [answer.readline() for _ in range(8)]
    assert lines.count(b": here\n") >= 2
    answer.close()
    connection.close()


def test_many_readers_hear_the_same(door: Door) -> None:
    start = diary(door)[-1]
    streams = [Stream(door, f"?after={start}") for _ in range(8)]
    array = door.ask("POST", "/api/v1/jobs", {"argv": ["true"], "array": "1-20"}).json["id"]
    heard: list[list[int]] = [[] for _ in streams]

    def read(number: int) -> None:
        ended = 0
        while ended < 20:
            event = streams[number].next()
            heard[number].append(event["id"])
            ended += event["kind"] == "JobEnded"

    threads = [threading.Thread(target=read, args=(number,)) for number in range(len(streams))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    door.wait(array)
    expected = diary(door, start)
    for listening, ids in zip(streams, heard, strict=True):
        listening.close()
        assert ids == expected[: len(ids)]


def test_a_last_event_id_that_is_none_is_refused(door: Door) -> None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "x'; drop"}
    assert door.ask("GET", "/api/v1/events", headers=headers).json["field"] == "Last-Event-ID"
