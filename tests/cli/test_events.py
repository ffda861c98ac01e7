"""`tenure events`: what happened, to whom and by whom."""

from __future__ import annotations

import json
import re
from itertools import islice
from threading import Timer

import pytest

from .conftest import Home


def test_the_newest_come_last_and_as_many_as_asked_for(home: Home) -> None:
    first = home.submit("--", "true")
    home.ok("wait", first)
    last = home.submit("--", "true")
    home.ok("wait", last)
    ends = ("events", "-n", "2", "--kind", "JobEnded")  # the steps behind an end may still be coming
    lines = home.ok(*ends).splitlines()
    assert [line[21:] for line in lines] == [f"JobEnded            {job}: attempt 1 completed" for job in (first, last)]
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", line) for line in lines)
    told = home.json(*ends)
    assert [event["job_id"] for event in told] == [first, last]
    assert home.ok(*ends, "-o", "name").split() == [str(event["id"]) for event in told]
    assert len(home.ok("events", "-n", "3").splitlines()) == 3
    assert home.ok("events", "-n", "0") == ""
    of_one = home.json("events", first)
    assert {event["job_id"] for event in of_one} == {first}
    assert of_one[0]["kind"] == "JobSubmitted"
    newest = home.json("events", "@", "--kind", "JobE")
    assert [(event["job_id"], event["kind"]) for event in newest] == [(last, "JobEnded")]


def test_of_an_array_its_tasks_are_told(home: Home) -> None:
    array = home.submit("--array", "1-2", "--", "true")
    home.tenure("wait", array)
    ended = home.json("events", array, "--kind", "JobEnded")
    assert sorted(event["job_id"] for event in ended) == [f"{array}_1", f"{array}_2"]


def test_who_changed_a_token_is_told_and_a_follower_hears_it(home: Home) -> None:
    follower = home.spawn("events", "-f", "--kind", "Token", "-o", "json")
    patience = Timer(30, follower.kill)
    patience.start()
    try:
        assert follower.stdout is not None
        secret = home.ok("token", "create", "told", "--only", "models", "--tokens-per-day", "500").strip()
        home.ok("token", "set", "told", "--tokens-per-day", "none")
        home.ok("token", "revoke", "told")
        heard = (json.loads(line) for line in follower.stdout)  # whether it began before or after them
        told = list(islice((event for event in heard if event["data"]["name"] == "told"), 3))
    finally:
        patience.cancel()
        follower.terminate()
        follower.communicate()
    assert [event["kind"] for event in told] == ["TokenCreated", "TokenChanged", "TokenRevoked"]
    said = home.ok("events", "-n", "3", "--kind", "TokenC", "--kind", "TokenR")
    assert (
        f"token told is created by {told[0]['data']['by']}: user, for models, may ask all models, 500 model tokens a day"
        in said
    )
    assert "no limit on model tokens a day" in said
    assert secret not in said + json.dumps(told)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--kind", "TokenCreate", "--kind", "Jbo"), "no kind of event begins so"),
        (("-n", "5001"), "up to 5000"),
        (("-n", "few"), "whole number"),
        (("99999",), "there is no job 99999"),
    ],
)
def test_what_is_not_there_is_said(home: Home, words: tuple[str, ...], said: str) -> None:
    answer = home.tenure("events", *words)
    assert (answer.code, said in answer.err) == (2, True), answer
