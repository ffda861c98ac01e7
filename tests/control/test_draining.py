"""A model that has to make room: what is in flight ends, nothing new is sent to it, and its time is bounded."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.control import verbs, views
from tenure.control.draining import ACK_S, REPORT_S, SETTLE_S, Drain, last_part_s
from tenure.domain.attempt import Stop, StopKind
from tenure.domain.ids import RunId

from .conftest import ME, House
from .test_models import declare, model, models, until

__all__ = ["models"]  # the fixture

S = 1_000_000


def drain(*, served: bool = True, timeout_s: float = 30, told_us: int = -10 * S) -> Drain:
    return Drain(RunId("1.1"), 0, timeout_s, served, version=7, told_us=told_us)


def at(seconds: float) -> int:
    return int(seconds * S)


def test_who_served_nobody_or_is_connected_to_nobody_leaves_at_once() -> None:
    assert drain(served=False).look(0, in_flight=1, connections=3, seen=None)
    assert drain().look(0, in_flight=1, connections=0, seen=None), "the gateway that said so has died"
    assert not drain().look(0, in_flight=1, connections=1, seen=None)


def test_a_silent_gateway_is_given_a_moment_and_one_that_has_just_spoken_a_longer_one() -> None:
    for told_us, moment in ((-10 * S, SETTLE_S), (-at(REPORT_S / 2), REPORT_S)):
        leaving = drain(told_us=told_us)
        assert not leaving.look(at(moment) - 1, in_flight=0, connections=1, seen=None)
        assert leaving.look(at(moment), in_flight=0, connections=1, seen=None)
    assert leaving.look(at(1), in_flight=1, connections=1, seen=None), "over is over"


def test_a_gateway_that_says_what_it_has_seen_is_believed_when_it_has() -> None:
    left_behind = Drain(RunId("1.1"), 0, 30, True, inherited=True, version=7)
    assert not left_behind.look(at(20), in_flight=0, connections=1, seen=7), "it was sent by the gateway before"
    leaving = drain()
    assert not leaving.look(at(0.9 * ACK_S), in_flight=0, connections=1, seen=6)
    assert not leaving.look(at(0.9 * ACK_S), in_flight=1, connections=1, seen=7)
    assert leaving.look(at(0.9 * ACK_S), in_flight=0, connections=1, seen=7)
    assert drain().look(at(ACK_S), in_flight=0, connections=1, seen=6)


@pytest.mark.parametrize(("timeout_s", "part"), [(30, 5), (4, 1), (600, 5), (0, 0)])
def test_drain_and_grace_share_the_stop_timeout(timeout_s: float, part: float) -> None:
    leaving = drain(timeout_s=timeout_s)
    leaving.stop = Stop(kind=StopKind.PREEMPT, reason="Preempted", grace_s=timeout_s)
    assert last_part_s(timeout_s) == part
    last = at(timeout_s - part)
    if timeout_s:
        assert not leaving.look(last - 1, in_flight=1, connections=1, seen=7)
        assert leaving.due_us(last - 1) == last
    assert leaving.look(last, in_flight=1, connections=1, seen=7)
    assert leaving.stop_now(last).grace_s == part
    assert leaving.stop_now(0).grace_s == timeout_s


class Stream:
    """A client of the server itself: as the gateway is, and without one."""

    def __init__(self, row: dict[str, Any], chunks: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", row["port"], timeout=30)
        body = json.dumps({"model": row["name"], "stream": True, "chunks": chunks})
        self._connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        self.answer = self._connection.getresponse()
        self.answer.readline()

    def rest(self) -> bytes:
        """Up to its end.  The connection stands: as long as it does, something may be in flight."""
        return self.answer.read()

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


def flying(house: House, count: int, *, active: bool = True) -> None:
    report = {"models": {"small": {"in_flight": count, "held": 0, "active": active}}}
    verbs.report_inference(house.platform, report, caller=ME)


def stopped(house: House, run: str) -> dict[str, Any]:
    """How its supervisor heard that it should go: `at` (microseconds), `grace_s`."""
    lines = [json.loads(line) for line in (house.home / "runs" / run / "supervisor.jsonl").read_text().splitlines()]
    return next(line for line in lines if line["kind"] == "stop")


def up(models: Callable[..., House], tmp_path: Path, *knobs: str, **spec: Any) -> tuple[House, dict[str, Any]]:
    """A platform and its one model, which is ready."""
    declare(tmp_path / "home", "small", *knobs, **spec)
    house = models()
    verbs.wake(house.platform, "small", caller=ME)
    return house, until(house, "ready")


def trainer(house: House) -> str:
    return house.gpu("true", shares=8, priority="training")


def test_a_stream_ends_before_its_server_is_asked_to_leave(models: Callable[..., House], tmp_path: Path) -> None:
    house, row = up(models, tmp_path, "--chunk-delay", "0.2", stopTimeout="20s")
    stream = Stream(row, 8)
    flying(house, 1)
    job = trainer(house)
    assert until(house, "draining")["reason"] == "Preempted"
    assert house.show(row["job_id"])["state"] == "evicting"
    assert model(house)["port"] is None, "nothing new is sent to it"
    assert stream.rest().endswith(b"data: [DONE]\n\n")
    assert house.show(job)["state"] == "queued"
    ended = time.time_ns() // 1000
    flying(house, 0)
    stream.close()
    assert house.wait(job)["outcome"] == "completed"
    assert stopped(house, row["run_id"])["at"] >= ended
    first = house.show(row["job_id"])["attempts"][0]
    assert (first["outcome"], first["evicted"]["by"]) == ("interrupted", job)


def test_what_does_not_end_is_cut_when_the_time_is_nearly_over(models: Callable[..., House], tmp_path: Path) -> None:
    house, row = up(models, tmp_path, "--chunk-delay", "0.2", "--ignore-term", stopTimeout="2s")
    stream = Stream(row, 10_000)
    flying(house, 1)
    job = trainer(house)
    house.wait(job)
    evicted, stop = house.platform.ledger.attempt(row["run_id"]).evicted_at, stopped(house, row["run_id"])
    assert evicted is not None
    assert (stop["at"] - evicted) / 1e6 >= 1.4
    assert stop["grace_s"] == 0.5, "drain and grace share the two seconds: a quarter is the server's own to leave in"
    ended = house.platform.ledger.attempt(row["run_id"]).ended_at
    assert ended is not None
    assert (ended - evicted) / 1e6 >= 1.9
    with pytest.raises((http.client.HTTPException, OSError)):
        stream.rest()
    stream.close()


@pytest.mark.parametrize("why", ["preempted", "asked to sleep"])
def test_nothing_in_flight_is_no_reason_to_wait(models: Callable[..., House], tmp_path: Path, why: str) -> None:
    house, row = up(models, tmp_path, stopTimeout="10m")
    if why == "preempted":
        house.wait(trainer(house))
    else:
        verbs.sleep(house.platform, "small", caller=ME)
        until(house, "asleep")
    assert stopped(house, row["run_id"])["grace_s"] > 500, "nearly all of the time was left"


def test_a_cancel_of_its_job_is_a_cancel(models: Callable[..., House], tmp_path: Path) -> None:
    house, row = up(models, tmp_path, "--chunk-delay", "0.2", stopTimeout="10m")
    stream = Stream(row, 10_000)
    flying(house, 1)
    job = trainer(house)
    until(house, "draining")
    house.cancel(row["job_id"], grace_s=0.5)
    house.wait(job)
    with pytest.raises((http.client.HTTPException, OSError)):
        stream.rest()
    stream.close()


def test_what_was_asked_to_sleep_sleeps_under_a_new_daemon_too(models: Callable[..., House], tmp_path: Path) -> None:
    house, row = up(models, tmp_path, "--chunk-delay", "0.3", stopTimeout="30s")
    stream = Stream(row, 20)
    flying(house, 1)
    verbs.sleep(house.platform, "small", caller=ME)
    until(house, "draining")
    house.close(keep_jobs=True)
    house.open(card=None)
    again = until(house, "draining", "ready")
    assert (again["state"], again["job_id"]) == ("draining", row["job_id"])
    assert "put to sleep by" in again["message"]
    assert stream.rest().endswith(b"data: [DONE]\n\n")
    stream.close()
    until(house, "asleep")
    verbs.wake(house.platform, "small", caller=ME)
    run = until(house, "ready")["run_id"]
    house.close(keep_jobs=True)
    house.open(card=None)
    assert until(house, "draining", "ready")["state"] == "ready", "that was another run"
    assert model(house)["run_id"] == run


def test_a_new_daemon_goes_on_with_a_drain(models: Callable[..., House], tmp_path: Path) -> None:
    house, row = up(models, tmp_path, "--chunk-delay", "0.3", stopTimeout="30s")
    stream = Stream(row, 20)
    flying(house, 1)
    job = trainer(house)
    until(house, "draining")
    house.close(keep_jobs=True)
    house.open(card=None)
    assert until(house, "draining")["job_id"] == row["job_id"]
    assert stream.rest().endswith(b"data: [DONE]\n\n"), "no word from a gateway, and a connection that stands"
    stream.close()
    assert house.wait(job)["outcome"] == "completed"
    assert views.show(house.platform, row["job_id"])["attempts"][0]["outcome"] == "interrupted"
    house.check_laws()
