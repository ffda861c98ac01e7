"""The time after a failure in which nothing is woken: a short one is waited through, a long one is told with its time."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .conftest import Home, eventually


def test_who_comes_within_a_short_backoff_is_held_and_answered(home: Home) -> None:
    home.declare("small")
    home.reload()
    pid = home.chat("small").json["pid"]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: home.heard()["small"] == "failed")
    at_once = home.chat("small", headers={"X-Tenure-Wait": "0"})
    assert at_once.status == 503
    assert int(at_once.headers["retry-after"]) >= 1
    with ThreadPoolExecutor(21) as pool:
        stream = pool.submit(home.chat, "small", stream=True)
        answers = list(pool.map(lambda _: home.chat("small"), range(20)))
    assert {answer.status for answer in answers} == {200}
    (now,) = {answer.json["pid"] for answer in answers}
    assert now != pid
    assert (stream.result().status, stream.result().body.count(b"[DONE]")) == (200, 1)


def test_a_backoff_grows_until_it_is_told_at_once_with_its_time(home: Home, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    home.declare("small", "--die-loading", "7", "--starts", str(starts))
    home.reload()
    for tries in range(1, 5):  # the first one fails by itself, each other one after 1, 2 and 4 seconds of waiting
        refused = home.chat("small")
        assert (refused.status, refused.error["code"]) == (503, "model_failed")
        assert len(starts.read_text().split()) == tries
        eventually(lambda: home.heard()["small"] == "failed")
    began = time.monotonic()
    refused = home.chat("small")
    assert (refused.status, refused.error["code"]) == (503, "model_failed")
    assert "ended by itself while it was loading" in refused.error["message"]
    assert 1 <= int(refused.headers["retry-after"]) <= 8
    assert len(starts.read_text().split()) == 4, f"nothing was started in these {time.monotonic() - began:.1f} s"


def test_a_wake_that_cannot_even_begin_is_told_to_everybody_who_asks_and_costs_nothing(home: Home) -> None:
    home.declare("small", queueName="of-nobody")
    home.reload()
    token = home.rest("POST", "/tokens", {"name": "poor", "tokens_per_day": 100})["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    for _ in range(2):
        refused = home.chat("small", headers=bearer, timeout=20, max_tokens=500)
        assert (refused.status, refused.error["code"]) == (503, "model_failed")
        assert "of-nobody" in refused.error["message"]
    home.declare("small")
    home.reload()
    assert home.chat("small", headers=bearer, max_tokens=500).status == 200, (
        "nothing of its budget is gone or set aside"
    )
    (use,) = [row["use"] for row in home.rest("GET", "/tokens") if row["name"] == "poor"]
    assert use["tokens_today"] in (0, 7)  # which is written down a moment later
    home.rest("DELETE", "/tokens/poor")
