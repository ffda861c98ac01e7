"""What is written of requests that were turned away: who and why, no token, and never a flood."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.gateway.refusals import KINDS, MINUTE_S, Refusal, Refusals

from .conftest import Home, eventually, opened

CODES = [(401, "invalid_api_key"), (401, "missing_token"), (403, "foreign_host"), (429, "rate_limit_exceeded")]


def unknown(fingerprint: str) -> Refusal:
    return Refusal(status=401, code="invalid_api_key", fingerprint=fingerprint, client="192.0.2.7")


def test_the_first_of_a_kind_is_said_at_once_and_the_others_of_its_minute_as_a_sum() -> None:
    refusals = Refusals()
    said = "401 invalid_api_key, an unknown token with fingerprint ab12cd34, from 192.0.2.7"
    assert list(refusals.saw(unknown("ab12cd34"), 5)) == [f"refused: {said}"]
    for n in range(1234):
        assert list(refusals.saw(unknown("ab12cd34"), 5 + n / 1000)) == []
    agent = Refusal(status=429, code="rate_limit_exceeded", token="agent", model="small", client="127.0.0.1")
    assert list(refusals.saw(agent, 50)) == [
        "refused: 429 rate_limit_exceeded, token agent, model small, from 127.0.0.1"
    ]
    assert list(refusals.due(5 + MINUTE_S - 0.01)) == []
    assert list(refusals.due(5 + MINUTE_S)) == [f"refused 1,234 times more within a minute: {said}"]
    assert list(refusals.due(1000)) == []
    assert list(refusals.saw(agent, 1000)) == [
        "refused: 429 rate_limit_exceeded, token agent, model small, from 127.0.0.1"
    ]


@given(st.lists(st.tuples(st.sampled_from(CODES), st.integers(0, 10_000), st.floats(0, 0.5)), max_size=2000))
def test_a_flood_is_counted_whole_and_bounded_in_lines(flood: list[tuple[tuple[int, str], int, float]]) -> None:
    refusals, now, lines = Refusals(), 0.0, []
    for (status, code), who, later in flood:
        now += later
        refusal = Refusal(status=status, code=code, fingerprint=f"{who:08x}")
        lines += [(now, line) for line in refusals.saw(refusal, now)]
    lines += [(now, line) for line in refusals.due(now + MINUTE_S)]
    numbers = [re.search(r"^refused ([\d,]+) times more", line) for _, line in lines]
    told = sum(int(number[1].replace(",", "")) if number else 1 for number in numbers)
    assert told == len(flood)
    for at, _ in lines:
        assert sum(1 for other, _ in lines if at <= other < at + MINUTE_S / 2) <= 3 * (KINDS + len(CODES))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with opened(tmp_path_factory.mktemp("guarded") / "home", TENURE_GATEWAY_TOKENS="1") as home:
        yield home


def test_the_gateways_log_and_metrics_say_what_was_refused_and_hold_no_token(guarded: Home) -> None:
    key = guarded.rest("POST", "/tokens", {"name": "agent", "requests_per_minute": 1, "models": ["small", "gone"]})[
        "token"
    ]
    root = guarded.rest("POST", "/tokens", {"name": "root"})["token"]
    guarded.bearer = {"Authorization": f"Bearer {root}"}
    guarded.declare("small")
    guarded.declare("other")
    guarded.reload()
    bearer = {"Authorization": f"Bearer {key}"}
    wrong = [f"sk-{secrets.token_urlsafe(24)}" for _ in range(200)]
    for headers in ({}, bearer, bearer, {"Host": "rebound.example", **bearer}):
        guarded.chat("small", headers=headers)
    assert guarded.chat("other", headers=bearer).status == 403
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(guarded.chat, "small", headers={"x-api-key": one}) for one in wrong]
        assert {one.result().status for one in asked} == {401}

    def counted() -> dict[str, int]:
        text = guarded.ask("GET", "/metrics", headers=guarded.bearer).body.decode()
        found = re.findall(r'^tenure_gateway_refused_total\{status="(\d+)",code="(\w+)"\} (\d+)$', text, re.M)
        return {f"{status} {code}": int(count) for status, code, count in found}

    assert counted() == {
        "401 invalid_api_key": 200, "401 missing_token": 1, "403 foreign_host": 1, "403 model_not_allowed": 1, "429 rate_limit_exceeded": 1,
    }  # fmt: skip
    log = guarded.path / "daemon" / "gateway.log"
    text = eventually(lambda: "invalid_api_key" in (read := log.read_text()) and read)
    for line in (
        "refused: 401 missing_token, from 127.0.0.1",
        "refused: 429 rate_limit_exceeded, token agent, model small, from 127.0.0.1",
        "refused: 403 model_not_allowed, token agent, model other, from 127.0.0.1",
        "refused: 403 foreign_host, from 127.0.0.1",
    ):
        assert text.count(line) == 1, text
    seen = re.findall(r"unknown token with fingerprint (\w{8}),", text)
    prints = {hashlib.sha256(one.encode()).hexdigest()[:8] for one in wrong}
    assert set(seen) <= prints
    assert 1 <= len(seen) <= KINDS
    guarded.tenure("down")  # what is not said yet is said now
    text = log.read_text()
    sums = re.findall(r"refused (\d+) times more within a minute: 401 invalid_api_key", text)
    assert sum(map(int, sums)) + len(seen) == 200
    assert "rebound.example" not in text
    for path in [path for path in guarded.path.rglob("*") if path.is_file()]:
        kept = path.read_bytes()
        assert not [one for one in (*wrong, key, root) if one.encode() in kept], path
