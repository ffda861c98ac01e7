"""Ollama's `keep_alive`: how long a model stays up after a request, said by the request."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from tenure.gateway.answers import Refused
from tenure.gateway.keep_alive import FOR_EVER, keep_alive_s
from tenure.gateway.naming import Names

from .conftest import Home, eventually


@pytest.mark.parametrize(
    ("said", "means"),
    [
        (None, None), (300, 300), (0, 0), (0.5, 0.5), (-1, FOR_EVER), (-5.5, FOR_EVER), ("5m", 300), ("1h30m", 5400), ("300ms", 0.3),
        ("0", 0), ("-1", FOR_EVER), ("-1m", FOR_EVER), ("0s", 0), ("24h", 86400), (" 10 ", 10), ("1.5h", 5400), ("2m3.5s", 123.5),
        (1e12, FOR_EVER), (1e300, FOR_EVER), (10**400, FOR_EVER), (-(10**400), FOR_EVER), ("1e12", FOR_EVER),
    ],
)  # fmt: skip
def test_what_is_said_and_what_it_means(said: object, means: float | None) -> None:
    assert keep_alive_s(said) == (pytest.approx(means) if means is not None else None)


@pytest.mark.parametrize("said", ["", "soon", "5 minutes", True, [], {}, "1d", "nan", "inf", float("inf")])
def test_what_is_no_time_is_refused(said: object) -> None:
    with pytest.raises(Refused) as refused:
        keep_alive_s(said)
    assert (refused.value.status, refused.value.param) == (400, "keep_alive")


def test_a_refusal_is_short_whatever_was_said() -> None:
    deep: list[object] = []
    for _ in range(990):
        deep = [deep]
    for said in ("x" * 100_000, ["y"] * 100_000, deep):
        with pytest.raises(Refused) as refused:
            keep_alive_s(said)
        assert len(refused.value.message) < 300
    with pytest.raises(Refused) as unknown:
        Names().one("z" * 100_000, None)
    assert len(unknown.value.message) < 300
    assert "'" + "z" * 100 + "'…; there are: none" in unknown.value.message


def sleeps_in(home: Home) -> float | None:
    at = home.model("small")["sleeps_at"]
    return None if at is None else (datetime.fromisoformat(at) - datetime.now(UTC)).total_seconds()


def test_it_is_the_models_idle_time_from_that_request_on(home: Home) -> None:
    home.declare("small", idleAfter="1h")
    home.reload()
    home.chat("small")
    eventually(lambda: (s := sleeps_in(home)) is not None and 3500 < s < 3601)
    home.chat("small", keep_alive="5m")
    eventually(lambda: (s := sleeps_in(home)) is not None and 280 < s < 301)
    body = b'{"model":"small","keep_alive":"5m"}'
    assert home.ask("POST", "/v1/chat/completions", body).json["size"] == len(body), "it is passed on as it was"
    home.chat("small")
    eventually(lambda: (s := sleeps_in(home)) is not None and 280 < s < 301)
    for said in (-1, 1e12, 10**400):
        home.chat("small", keep_alive=said)
        eventually(lambda: sleeps_in(home) is None)
        home.chat("small", keep_alive="5m")
        eventually(lambda: sleeps_in(home) is not None)
    home.chat("small", keep_alive=-1)
    eventually(lambda: sleeps_in(home) is None)
    assert home.model("small")["state"] == "ready"
    asked = time.monotonic()
    home.chat("small", stream=True, keep_alive=1)
    row = home.until("small", "asleep")
    assert time.monotonic() - asked > 0.8
    assert "no inference for 1 s" in row["message"]
    home.chat("small")
    eventually(lambda: (s := sleeps_in(home)) is not None and 3500 < s < 3601)  # it ended with that sleep


def test_zero_sleeps_as_soon_as_nothing_is_in_flight(home: Home) -> None:
    home.declare("small", "--chunk-delay", "0.3", idleAfter="1h")
    home.reload()
    answer = home.chat("small", stream=True, chunks=4, keep_alive=0)
    assert answer.body.endswith(b"data: [DONE]\n\n"), "its own answer is whole"
    home.until("small", "asleep")


def test_one_that_nobody_understands_is_refused_before_anybody_is_asked(home: Home) -> None:
    home.declare("small")
    home.reload()
    refused = home.chat("small", keep_alive="soon")
    assert (refused.status, refused.error["param"]) == (400, "keep_alive")
    assert home.model("small")["wakes"] == 0
