"""A window on the card: nothing wakes inside, who asks hears until when, and who was there before ends or is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenure.domain.model import ModelState
from tenure.gateway.policy import Desk
from tenure.gateway.words import Forward, Limits, Refuse, Seen, Ticket, Wake, seen_of

from .claims import Windows, check_nothing_wakes_inside, told
from .conftest import PATIENCE_S, Home, alive, eventually

LIMITS = Limits(hold_s=120)
SHUT = Seen(name="a", state=ModelState.ASLEEP, window="card 0 is claimed: window w1 of ann lasts until 16:00", retry_after_s=600)  # fmt: skip
READY = Seen(name="a", state=ModelState.READY, port=1, run="1.1")


# --- the decisions alone


def ask(desk: Desk, id: int, now: float, **more: Any) -> list[Any]:
    return desk.arrive(Ticket(id=id, model="a", at=now, what="a test", who="me", **more), now)


@pytest.mark.parametrize("state", [ModelState.ASLEEP, ModelState.QUEUED, ModelState.FAILED, ModelState.DRAINING])
@pytest.mark.parametrize("patient", [True, False])
def test_who_asks_inside_is_told_the_end_and_wakes_nobody(state: ModelState, patient: bool) -> None:
    desk = Desk(LIMITS)
    desk.see([replace(SHUT, state=state)], 0)
    (refusal,) = ask(desk, 1, 10, patient=patient)
    assert refusal == Refuse(1, 503, "card_in_window", f"a cannot wake: {SHUT.window}", 590)


def test_who_was_held_before_it_is_told_the_same_when_it_begins() -> None:
    desk = Desk(LIMITS)
    desk.see([replace(SHUT, window="", retry_after_s=0)], 0)
    assert [type(action) for action in ask(desk, 1, 0)] == [Wake]
    assert desk.see([replace(SHUT, state=ModelState.DRAINING)], 20) == [Refuse(1, 503, "card_in_window", f"a cannot wake: {SHUT.window}", 600)]  # fmt: skip
    assert desk.held == 0


def test_who_can_wait_for_its_end_is_held_and_answered() -> None:
    desk = Desk(LIMITS)
    desk.see([replace(SHUT, retry_after_s=119)], 0)
    assert [type(action) for action in ask(desk, 1, 0)] == [Wake]
    (hasty,) = ask(desk, 2, 0, patient=False)
    assert (hasty.code, hasty.retry_after_s) == ("card_in_window", 119)
    assert [a for a in desk.see([replace(SHUT, state=ModelState.QUEUED, retry_after_s=19)], 100) if isinstance(a, Refuse)] == []  # fmt: skip
    assert desk.see([READY], 119.5) == [Forward(1, 1, "1.1")]
    desk.see([replace(SHUT, retry_after_s=121)], 200)
    (long,) = ask(desk, 3, 200)
    assert long.code == "card_in_window"


def test_one_whose_end_moves_away_is_refused_in_time() -> None:
    """A card that is being cleared: the window lasts its length from then on, and then is later with every look."""
    desk = Desk(LIMITS)
    desk.see([replace(SHUT, retry_after_s=60)], 0)
    ask(desk, 1, 0)
    refusals = [a for now in range(1, 100) for a in desk.see([replace(SHUT, retry_after_s=60)], now) if isinstance(a, Refuse)]  # fmt: skip
    assert [(r.code, r.retry_after_s) for r in refusals] == [("card_in_window", 60)]


def test_one_that_is_up_answers_whatever_the_row_says() -> None:
    row = {"name": "a", "state": "ready", "port": 1, "run_id": "1.1", "window": {"message": "…"}, "retry_after_s": 9}
    desk = Desk(LIMITS)
    desk.see([seen_of(row)], 0)
    assert ask(desk, 1, 0) == [Forward(1, 1, "1.1")]


# --- the whole of it


@pytest.fixture
def windows(home: Home) -> Iterator[Windows]:
    windows = Windows(home)
    yield windows
    windows.clear()


def test_a_request_inside_wakes_nobody_and_hears_the_end(home: Home, windows: Windows) -> None:
    home.declare("small")
    home.declare("always", resident=True, priorityClassName="always-on", queueName="general")
    home.reload()
    home.until("always", "ready")
    window = windows.until(windows.claim("1h")["id"], "active")
    eventually(lambda: home.model("small")["window"])
    for headers in ({}, {"X-Tenure-Wait": "0"}):
        told(home.chat("small", headers=headers), window)
    told(home.chat("small", stream=True), window)  # before any byte of a stream
    assert home.chat("always").status == 200
    row = home.model("small")
    assert (row["state"], row["wakes"], row["window"]["id"]) == ("asleep", 0, window["id"])
    assert 3500 < row["retry_after_s"] <= 3600
    assert home.model("always")["window"] is None
    windows.release(window["id"])
    eventually(lambda: home.model("small")["window"] is None)
    eventually(lambda: home.chat("small").status == 200)
    check_nothing_wakes_inside(home, {"small"})


def test_a_window_is_claimed_while_it_wakes(home: Home, windows: Windows) -> None:
    """Its load would last for ever."""
    home.declare("waking", "--load", "3600", stopTimeout="2s")
    home.reload()
    with ThreadPoolExecutor(3) as pool:
        held = [pool.submit(home.chat, "waking") for _ in range(3)]
        home.until("waking", "starting")
        window = windows.until(windows.claim("1h")["id"], "active")
        for answer in held:
            told(answer.result(PATIENCE_S), window)
    eventually(lambda: home.model("waking")["state"] in ("queued", "asleep"))
    told(home.chat("waking"), window)
    windows.release(window["id"])
    check_nothing_wakes_inside(home, {"waking"})


@pytest.mark.parametrize(("words", "stop_s", "ends"), [(6, 60, True), (2000, 3, False)])
def test_a_window_is_claimed_while_a_stream_runs(
    home: Home, windows: Windows, words: int, stop_s: int, ends: bool
) -> None:
    """One that ends within stopTimeout ends, and is not waited for any longer; a longer one is told.  The card is not the
    window's before that."""
    home.declare("streams", "--chunk-delay", "0.25", "--leave-after", "2.5", stopTimeout=f"{stop_s}s")
    home.reload()
    home.chat("streams")
    first, over, heard = threading.Event(), threading.Event(), bytearray()

    def listen() -> None:
        connection = home.connect(60)
        body = {"model": "streams", "messages": [], "stream": True, "chunks": words}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        while chunk := answer.read1(4096):
            heard.extend(chunk)
            first.set()
        connection.close()
        over.set()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    assert first.wait(PATIENCE_S)
    window = windows.until(windows.claim("1h", wait=True)["id"], "active")
    assert over.wait(PATIENCE_S)
    listener.join(5)
    text = heard.decode()
    assert text.count("data:") > 1
    if ends:
        assert "[DONE]" in text
    else:
        assert '"error"' in text
        assert "[DONE]" not in text.split('"error"')[0]
    told(home.chat("streams"), window)
    check_nothing_wakes_inside(home, {"streams"})


def test_who_asks_shortly_before_its_end_is_held_and_answered(home: Home, windows: Windows) -> None:
    home.declare("soon")
    home.reload()
    window = windows.claim("4s")
    answer = home.chat("soon")
    assert answer.status == 200
    assert windows.until(window["id"], "ended")["reason"] == "Lapsed"
    (held,) = [event for event in home.events("ModelHeld") if event["data"]["model"] == "soon"]
    (end,) = [event for event in home.events("WindowEnded") if event["data"]["window"] == window["id"]]
    assert held["id"] < end["id"], "it came before the end"
    check_nothing_wakes_inside(home, {"soon"})


@pytest.mark.parametrize("including", [False, True])
def test_residents_stay_and_answer_or_leave_and_come_back_by_themselves(
    home: Home, windows: Windows, tmp_path: Path, including: bool
) -> None:
    name = "leaves" if including else "stays"
    home.declare(name, "--starts", str(tmp_path / "starts"), resident=True, priorityClassName="always-on", queueName="general")  # fmt: skip
    home.reload()
    home.until(name, "ready")
    first = int((tmp_path / "starts").read_text())
    window = windows.claim("1h", including_resident=including)
    windows.until(window["id"], "active")
    if including:
        assert not alive(first, str(tmp_path))
        answer = home.chat(name, headers={"X-Tenure-Wait": "0"})
        assert (answer.status, answer.error["code"]) == (503, "card_in_window")
    else:
        assert home.chat(name).json["pid"] == first
    windows.release(window["id"])
    home.until(name, "ready")
    home.hears(name, "ready")
    assert (home.chat(name).json["pid"] == first) is not including
    assert len((tmp_path / "starts").read_text().split()) == (2 if including else 1)
    lapses = windows.claim("1s", including_resident=including)
    assert windows.until(lapses["id"], "ended")["reason"] == "Lapsed"
    home.until(name, "ready")
    assert len((tmp_path / "starts").read_text().split()) == (3 if including else 1)
    if including:
        check_nothing_wakes_inside(home, {name})
