"""Advice against what really happened: a model with a short idle time, real requests, and the diary beside the forecast."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest

from .conftest import Home, eventually, lines

IDLE_S = 3.0


def seconds(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["at"]).timestamp()


def test_the_forecast_for_the_window_in_force_is_what_happened(home: Home) -> None:
    home.declare("steady", "--load", "0.4", idleAfter=f"{IDLE_S}s")
    home.declare("other")
    home.reload()
    begun = time.time()
    for quick in (3, 1, 2):
        for number in range(quick):
            assert home.chat("steady", think=0.1).status == 200
            if number + 1 < quick:
                time.sleep(IDLE_S / 4)  # well within the window, and told apart from no pause at all
        home.until("steady", "asleep")
    assert home.chat("nobody").status == 404
    assert home.chat("other").status == 200
    journal = home.path / "gateway" / "requests.jsonl"
    asked = eventually(
        lambda: len(found := [line for line in lines(journal) if line["model"] == "steady"]) == 6 and found
    )
    days = (time.time() - begun + 1) / 86_400
    answer = home.rest("GET", "/models/steady/advice", days=days, windows_s=[0.2, 60])
    assert (answer["requests"], answer["idle_after_s"]) == (6, IDLE_S)
    rows = {row["idle_after_s"]: row for row in answer["rows"]}
    times = {window: round(row["wakes_per_day"] * answer["days"], 2) for window, row in rows.items()}

    diary = [e for e in home.diary() if e["data"].get("model") == "steady" and seconds(e) >= begun]
    woken = [e for e in diary if e["kind"] == "ModelWoken"]
    ready, asleep = (
        [e for e in diary if e["kind"] == "ModelChanged" and e["data"]["state"] == state]
        for state in ("ready", "asleep")
    )
    assert 3 < times.pop(0.2) <= 6, "who asks while it loads again has to wait, and wakes it no second time"
    assert times == pytest.approx({IDLE_S: len(woken), 60.0: 1, None: 0}, abs=0.02)
    assert len(woken) == len(asleep) == 3
    assert answer["wake"]["count"] == 3

    took = [seconds(end) - seconds(begin) for begin, end in zip(woken, ready, strict=True)]
    uneven = sum(abs(one - answer["wake"]["p50_s"]) for one in took)  # a forecast takes them for equally long
    ends = [max(line["at"] for line in asked if line["at"] < seconds(end)) for end in asleep]
    until_due = sum(end + IDLE_S - seconds(begin) for begin, end in zip(woken, ends, strict=True))
    forecast = rows[IDLE_S]["hours_up_per_day"] * 3600 * answer["days"]
    assert forecast == pytest.approx(until_due, abs=0.5 + uneven)
    held = sum(seconds(end) - seconds(begin) for begin, end in zip(woken, asleep, strict=True))
    assert forecast <= held + 0.5 + uneven, (
        "it looks at its clock once a second, and its processes need a moment to leave"
    )
    waited = sum(line["held_s"] for line in asked)
    assert rows[IDLE_S]["waited_s_per_day"] * answer["days"] == pytest.approx(waited, abs=0.9 + uneven)
    assert answer["recommended"] is None
    assert "6 requests of 20" in answer["reason"]
    assert home.model("steady")["wakes"] == 3, "asking for advice wakes nobody"
