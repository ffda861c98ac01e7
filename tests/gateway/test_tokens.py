"""Tokens at a gateway that other machines can reach: rights, rates and budgets, before any byte of an answer.

It listens on every address and is asked at one of this machine's own; another one, whose minute is two seconds long,
shows that a limit lets go again.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from .conftest import PATIENCE_S, Answer, Home, alive, eventually, gateway_pid, lines

PRICE = 7  # model tokens of one answer of the small server


def own_address() -> str:
    """One of this machine's addresses that is not loopback; loopback where it has no other."""
    for found in psutil.net_if_addrs().values():
        for one in found:
            if one.family == socket.AF_INET and not one.address.startswith("127."):
                return one.address
    return "127.0.0.1"


def within_a_second(key: Key, status: int) -> Answer:
    """What is changed now is known to every request that comes a second later."""
    changed = time.monotonic()
    while True:
        asked = time.monotonic()
        if (answer := key.chat()).status == status:
            return answer
        assert asked - changed <= 1, f"still {answer.status}"
        time.sleep(0.05)


@dataclass
class Key:
    """A token and its owner."""

    home: Home
    name: str
    secret: str

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}

    def chat(self, model: str = "small", **fields: Any) -> Answer:
        return self.home.chat(model, headers=self.bearer, **fields)

    def models(self) -> list[str]:
        return [one["id"] for one in self.home.ask("GET", "/v1/models", headers=self.bearer).json["data"]]

    def use(self) -> dict[str, Any]:
        use: dict[str, Any] = next(row["use"] for row in self.home.rest("GET", "/tokens") if row["name"] == self.name)
        return use


@dataclass
class Far:
    home: Home
    seen: Path

    def key(self, **limits: Any) -> Key:
        """A new token: the gateway has not heard of it, and so believes nothing old."""
        name = f"t{secrets.token_hex(4)}"
        return Key(self.home, name, self.home.rest("POST", "/tokens", {"name": name, **limits})["token"])

    def journal(self, key: Key) -> list[dict[str, Any]]:
        return [line for line in lines(self.home.path / "gateway" / "requests.jsonl") if line["who"] == key.name]


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    """Reachable from elsewhere once it has a token; `small` with an alias and an adapter is ready, `other` sleeps."""
    folder = tmp_path_factory.mktemp("far")
    home = Home(folder / "home")
    home.up()  # as the refusal without any token says: once on loopback
    home.tenure("down")
    home.env["TENURE_GATEWAY_HOST"] = "0.0.0.0"
    home.up()
    home.url = home.url.replace("127.0.0.1", own_address())
    far = Far(home, folder / "seen")
    try:
        home.declare("small", "--load", "1.2", "--seen", str(far.seen), aliases=["default"], adapters=[{"name": "sql"}])
        home.declare("other")
        home.rest("POST", "/policy:reload")
        eventually(lambda: {"small", "other"} <= set(far.key().models()))
        assert far.key().chat().status == 200
        yield far
    finally:
        home.tenure("down")


# -- who


@pytest.mark.parametrize("stream", [False, True])
def test_nobody_comes_in_without_a_token_that_is_known(far: Far, stream: bool) -> None:
    missing = far.home.chat("small", stream=stream)
    assert (missing.status, missing.error["type"], missing.error["code"]) == (
        401,
        "authentication_error",
        "missing_token",
    )
    for headers in ({"Authorization": "Bearer sk-wrong"}, {"x-api-key": "sk-wrong"}, {"api-key": "sk-wrong"}):
        unknown = far.home.chat("small", stream=stream, headers=headers)
        assert (unknown.status, unknown.error["code"]) == (401, "invalid_api_key")
        assert (unknown.headers["content-type"], unknown.headers["www-authenticate"]) == ("application/json", "Bearer")
    for headers in ({"Authorization": "Bearer "}, {"Authorization": "Basic eDp5"}):
        assert far.home.chat("small", stream=stream, headers=headers).status == 401
    assert far.home.ask("GET", "/v1/models").status == 401
    assert far.home.ask("GET", "/metrics").status == 401
    assert far.home.ask("GET", "/health").status == 200
    assert far.home.ask("GET", "/metrics", headers=far.key().bearer).status == 200


@pytest.mark.parametrize("header", ["Authorization", "x-api-key", "api-key"])
def test_a_known_one_comes_in_by_the_header_that_its_client_sends(far: Far, header: str) -> None:
    key = far.key()
    value = f"Bearer {key.secret}" if header == "Authorization" else key.secret
    assert far.home.chat("small", headers={header: value}).status == 200
    assert eventually(lambda: far.journal(key)), "the line names it"


def test_another_sites_page_is_refused_with_a_token_and_without(far: Far) -> None:
    for token in ({}, far.key().bearer):
        for page in ({"Origin": "https://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "rebound.example"}, {"Origin": "null"}):  # fmt: skip
            refused = far.home.chat("small", headers={**token, **page})
            assert refused.status == 403, (token, page)
            assert refused.error["type"] == "permission_error"
            assert "access-control-allow-origin" not in refused.headers
    asked = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
    assert far.home.ask("OPTIONS", "/v1/chat/completions", headers=asked).status == 403


def test_a_token_reaches_no_server_and_no_file(far: Far) -> None:
    key = far.key()
    sent = {**key.bearer, "x-api-key": key.secret, "api-key": key.secret, "X-Some-Client-Key": f"key {key.secret}", "X-Kept": "kept"}  # fmt: skip
    assert far.home.chat("small", headers=sent).status == 200
    assert far.home.chat("nobody", headers=sent).status == 404
    asked = f"/v1/chat/completions?a=1&api_key={key.secret}&b=2"
    assert far.home.ask("POST", asked, {"model": "small"}, headers=key.bearer).status == 200
    assert lines(far.seen)[-1]["path"] == "/v1/chat/completions?a=1&b=2"
    assert far.home.chat("small", headers=sent, stream=True).status == 200
    upstream = lines(far.seen)[-1]["headers"]
    assert upstream["x-kept"] == "kept"
    assert not {"authorization", "x-api-key", "api-key", "x-some-client-key", "cookie"} & set(upstream)
    wrong = secrets.token_urlsafe(32)
    assert far.home.chat("small", headers={"Authorization": f"Bearer {wrong}"}).status == 401
    looked_at = [path for path in far.home.path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert far.home.path / "gateway" / "requests.jsonl" in looked_at
    assert any(path.name == "gateway.log" for path in looked_at)
    for path in [*looked_at, far.seen]:
        with suppress(FileNotFoundError):  # a new one that takes an old one's name, or an old one that is dropped
            text = path.read_bytes()
            assert key.secret.encode() not in text, path
            assert wrong.encode() not in text, path


def test_an_end_and_a_revocation_are_known_within_a_second(far: Far) -> None:
    key = far.key(expires="3s")
    assert key.chat().status == 200
    over = eventually(lambda: (answer := key.chat()).status == 401 and answer)
    assert over.error["code"] == "expired_token"
    assert f"tenure token set {key.name} --expires" in over.error["message"]
    revoked = far.key()
    assert revoked.chat().status == 200
    far.home.rest("DELETE", f"/tokens/{revoked.name}")
    assert within_a_second(revoked, 401).error["code"] == "invalid_api_key"


# -- which models


def test_a_token_asks_the_models_that_it_may_and_sees_no_other(far: Far) -> None:
    key = far.key(models=["default"])
    assert key.models() == ["small"]
    assert [key.chat(name).status for name in ("small", "default")] == [200, 200]
    for name in ("other", "sql"):
        refused = key.chat(name, stream=True)
        assert (refused.status, refused.error["type"], refused.error["code"], refused.error["param"]) == (403, "permission_error", "model_not_allowed", "model")  # fmt: skip
        assert f"tenure token set {key.name} --models default,{name}" in refused.error["message"]
    missing = key.chat("nobody")
    assert missing.status == 404
    assert "other" not in missing.error["message"]
    assert far.home.ask("GET", "/v1/models/other", headers=key.bearer).status == 404
    assert far.home.ask("GET", "/v1/models/default", headers=key.bearer).json["id"] == "small"
    assert (far.home.model("other")["state"], far.home.model("other")["wakes"]) == ("asleep", 0)
    adapter = far.key(models=["sql"])
    assert (adapter.models(), adapter.chat("sql").status, adapter.chat("small").status) == (["sql"], 200, 403)


def test_a_form_cannot_name_one_model_to_us_and_another_to_the_server(far: Far) -> None:
    key = far.key(models=["small"])

    def form(*fields: tuple[str, str]) -> Answer:
        parts = "".join(f"--b\r\nContent-Disposition: form-data; {field}\r\n\r\n{value}\r\n" for field, value in fields)
        headers = {**key.bearer, "Content-Type": "multipart/form-data; boundary=b"}
        return far.home.ask("POST", "/v1/audio/transcriptions", (parts + "--b--\r\n").encode(), headers=headers)

    assert form(('name="file"; filename="a.wav"', "RIFF"), ('name="model"', "small")).status == 200
    twice = form(('name="model"', "small"), ('name="model"', "sql"))
    assert (twice.status, twice.error["code"]) == (400, "several_models")
    for written in ("name=model", 'Name="model"', 'name="model"; x="y"'):
        assert form((written, "sql")).status == 403, written


def test_a_token_for_jobs_asks_none(far: Far) -> None:
    key = far.key(scopes=["jobs"])
    refused = key.chat()
    assert (refused.status, refused.error["type"]) == (403, "permission_error")
    assert "--only both" in refused.error["message"]
    assert far.home.ask("GET", "/v1/models", headers=key.bearer).status == 403


# -- how much


def test_of_fifty_at_once_exactly_as_many_pass_as_may(far: Far) -> None:
    key = far.key(requests_per_minute=10)
    assert "other" in key.models(), "the list is free"
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda n: key.chat(stream=n % 2 == 0), range(50)))
    assert sorted(answer.status for answer in answers) == [200] * 10 + [429] * 40
    for answer in answers:
        assert answer.headers["x-ratelimit-limit-requests"] == "10"
        assert "x-ratelimit-limit-tokens" not in answer.headers
    passed = [answer for answer in answers if answer.status == 200]
    assert {answer.headers["x-ratelimit-remaining-requests"] for answer in passed} == {str(n) for n in range(10)}
    refused = next(answer for answer in answers if answer.status == 429)
    assert refused.headers["content-type"] == "application/json"
    assert (refused.error["type"], refused.error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert f"tenure token set {key.name} --requests-per-minute" in refused.error["message"]
    assert 59 - (refused.at - min(answer.asked_at for answer in answers)) <= int(refused.headers["retry-after"]) <= 61
    assert refused.headers["x-ratelimit-reset-requests"].endswith("s")
    assert "x-should-retry" not in refused.headers
    assert eventually(lambda: sorted(line["status"] for line in far.journal(key)) == [200] * 10 + [429] * 40)
    eventually(lambda: key.use()["requests_today"] == 10)

    far.home.rest("PATCH", f"/tokens/{key.name}", {"requests_per_minute": 12})
    within_a_second(key, 200)
    assert [key.chat().status for _ in range(3)] == [200, 429, 429], "what was used before counts"
    far.home.rest("PATCH", f"/tokens/{key.name}", {"requests_per_minute": None})
    free = within_a_second(key, 200)
    assert "x-ratelimit-limit-requests" not in free.headers


def test_a_held_request_is_counted_when_it_arrives_and_once(far: Far) -> None:
    key = far.key(requests_per_minute=3)
    far.home.rest("POST", "/models/small:sleep")
    far.home.until("small", "asleep")
    with ThreadPoolExecutor(3) as pool:
        held = [pool.submit(key.chat, stream=True) for _ in range(3)]
        eventually(lambda: key.use()["requests_today"] == 3)
        refused = key.chat(stream=True)
        assert (refused.status, refused.headers["content-type"]) == (429, "application/json")
        assert [one.result().status for one in held] == [200, 200, 200]
    assert all(one.result().body.startswith(b": ping") for one in held), (
        "its headers were ours, before there was an answer"
    )
    assert {one.result().headers["x-ratelimit-limit-requests"] for one in held} == {"3"}
    assert key.use()["requests_today"] == 3
    assert eventually(lambda: len(far.journal(key)) == 4)
    assert [line["held"] for line in far.journal(key) if line["status"] == 200] == [True] * 3


def test_a_budget_of_a_day_is_model_tokens_of_prompts_and_answers(far: Far) -> None:
    key = far.key(tokens_per_day=2 * PRICE)
    assert [key.chat().status for _ in range(2)] == [200, 200]
    refused = key.chat(stream=True)
    assert (refused.status, refused.error["type"], refused.error["code"]) == (
        429,
        "rate_limit_error",
        "insufficient_quota",
    )
    assert "14 of the 14 model tokens" in refused.error["message"]
    assert "T00:00:00Z" in refused.error["message"]
    assert f"tenure token set {key.name} --tokens-per-day" in refused.error["message"]
    assert 0 < int(refused.headers["retry-after"]) <= 86_400
    assert refused.headers["x-should-retry"] == "false"
    eventually(lambda: key.use()["tokens_today"] == 2 * PRICE)
    table = far.home.tenure("token", "ls")
    assert f"{2 * PRICE} tokens/day" in table
    assert f"2 requests, {2 * PRICE} tokens" in table


def guess(answer: int, **fields: Any) -> int:
    """What is set aside for a request of `Key.chat`, and what its prompt costs where the server says nothing."""
    body = {"model": "small", "messages": [{"role": "user", "content": "?"}], **fields}
    return -(-len(json.dumps(body)) // 4) + answer


def test_a_stream_that_says_no_usage_costs_its_prompt_and_its_words_and_so_does_one_that_is_left(far: Far) -> None:
    key = far.key(tokens_per_minute=100_000)
    prompt = {"note": "many words " * 400}
    first = key.chat(stream=True, chunks=5, max_tokens=50, **prompt)
    asked = guess(0, stream=True, chunks=5, max_tokens=50, **prompt)
    assert first.status == 200
    assert first.headers["x-ratelimit-remaining-tokens"] == str(100_000 - asked - 50), "it is set aside"
    assert key.chat(max_tokens=50).headers["x-ratelimit-remaining-tokens"] == str(
        100_000 - asked - 5 - guess(50, max_tokens=50)
    )
    eventually(lambda: key.use()["tokens_today"] == asked + 5 + PRICE)
    connection = far.home.connect()
    body = json.dumps({"model": "small", "stream": True, "chunks": 200_000, **prompt})
    connection.request("POST", "/v1/chat/completions", body, {**key.bearer, "Content-Type": "application/json"})
    connection.getresponse().read(1000)
    connection.close()
    before = asked + 5 + PRICE
    left = eventually(lambda: (used := key.use()["tokens_today"]) > before and used)
    assert before + len(body) // 4 < left < before + len(body) // 4 + 200_000


def test_of_many_at_once_no_more_are_let_in_than_the_budget_is_enough_for(far: Far, tmp_path: Path) -> None:
    fields = {"until": str(tmp_path / "go on"), "max_tokens": 200}
    each = guess(200, **fields)
    key = far.key(tokens_per_day=4 * each + 1)
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(key.chat, **fields) for _ in range(20)]
        refused = [one.result() for one in islice(as_completed(asked), 15)]
        assert {(one.status, one.error["code"]) for one in refused} == {(429, "rate_limit_exceeded")}
        assert {one.headers["retry-after"] for one in refused} == {"2"}
        assert "set aside for its requests on their way" in refused[0].error["message"]
        (tmp_path / "go on").touch()
        assert sorted(one.result().status for one in asked) == [200] * 5 + [429] * 15, "the fifth has what is left"
    eventually(lambda: key.use()["tokens_today"] == 5 * PRICE)
    assert key.chat(**fields).status == 200, "and what was set aside is there again"


def test_however_requests_end_nothing_stays_set_aside(far: Far) -> None:
    limit = 10**8
    key, home = far.key(tokens_per_minute=limit), far.home
    home.declare("dies", "--load", "0.2", "--die-loading", "3", queueName="general")
    home.declare("drops", "--drop", "4", queueName="general")
    home.declare("lies", "--lie", queueName="general")
    home.declare("loads", "--load", "600", queueName="general", stopTimeout="1s")
    home.rest("POST", "/policy:reload")
    eventually(lambda: {"dies", "drops", "lies", "loads"} <= set(key.models()))

    def gone_after(seconds: float, model: str, **fields: Any) -> int:
        with suppress(TimeoutError):
            key.chat(model, timeout=seconds, **fields)
        return 499

    def gone_mid_stream() -> int:
        connection, body = home.connect(), json.dumps({"model": "small", "stream": True, "chunks": 10**6})
        connection.request("POST", "/v1/chat/completions", body, {**key.bearer, "Content-Type": "application/json"})
        connection.getresponse().read(1000)
        connection.close()
        return 499

    def at_once(model: str) -> int:
        headers = key.bearer | {"X-Tenure-Wait": "0"}
        return home.ask("POST", "/v1/chat/completions", {"model": model, "messages": []}, headers=headers).status

    ends: dict[int, list[Callable[[], int]]] = {
        200: [lambda: key.chat().status, lambda: key.chat(stream=True, die_at=2).status],
        400: [lambda: home.ask("POST", "/v1/chat/completions", b"{", headers=key.bearer).status],
        404: [lambda: key.chat("nobody").status],
        499: [
            lambda: gone_after(0.3, "loads"),
            lambda: gone_after(1.5, "loads", stream=True),  # its pings have begun
            lambda: gone_after(0.3, "small", think=5),
            gone_mid_stream,
        ],
        502: [lambda: key.chat("drops").status],
        503: [
            lambda: key.chat("dies").status,
            lambda: key.chat("lies").status,
            lambda: at_once("loads"),
        ],
    }
    for status, ways in ends.items():
        for way in ways:
            assert way() == status
    rest = guess(50, max_tokens=50)

    def aside() -> int:
        """By what the next one is told, beyond what is used within the minute."""
        kept = json.loads((home.path / "gateway" / "use.json").read_text())["tokens"][key.name]
        used = sum(tokens for _, _, tokens in kept["minute"])
        left = int(key.chat(max_tokens=50).headers["x-ratelimit-remaining-tokens"])
        return limit - used - rest - left

    eventually(lambda: aside() == 0)


def test_what_was_used_outlives_a_gateway_that_is_killed(far: Far) -> None:
    key = far.key(requests_per_minute=4, tokens_per_day=1000)
    assert [key.chat().status for _ in range(4)] == [200] * 4
    eventually(lambda: key.use()["tokens_today"] == 4 * PRICE)
    gateway = gateway_pid(far.home)
    os.kill(gateway, signal.SIGKILL)
    eventually(lambda: not alive(gateway, "tenure.gateway.main"))
    assert key.chat().status == 429
    assert key.use()["tokens_today"] == 4 * PRICE
    kept = far.home.path / "gateway" / "use.json"
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def short(far: Far) -> Iterator[Home]:
    """Another gateway of the same platform, with a minute of two seconds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        words = ["--fd", str(listener.fileno()), "--tokens", "--minute", "2"]
        gateway = subprocess.Popen([sys.executable, "-P", "-m", "tenure.gateway.main", *words], env=far.home.env, pass_fds=(listener.fileno(),))  # fmt: skip
        home = Home(far.home.path)
        home.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        try:
            yield home
        finally:
            gateway.terminate()
            gateway.wait(PATIENCE_S)


def test_who_waits_as_long_as_told_is_answered(far: Far, short: Home) -> None:
    key = far.key(requests_per_minute=2)
    key.home = short
    with ThreadPoolExecutor(8) as pool:  # at once: two seconds are soon over
        answers = list(pool.map(lambda _: key.chat(), range(8)))
    assert sorted(answer.status for answer in answers)[:2] == [200, 200]
    refused = next(answer for answer in answers if answer.status == 429)
    time.sleep(int(refused.headers["retry-after"]))
    assert key.chat().status == 200
    with openai.OpenAI(base_url=short.url, api_key=key.secret, max_retries=2) as client:
        for _ in range(3):  # OpenAI's client waits by itself, as the header says
            client.chat.completions.create(model="small", messages=[])


def test_the_openai_client_raises_what_its_users_catch(far: Far) -> None:
    def ask(secret: str, model: str = "small") -> None:
        with openai.OpenAI(base_url=far.home.url, api_key=secret, max_retries=0) as client:
            client.chat.completions.create(model=model, messages=[{"role": "user", "content": "?"}])

    def raised(kind: type[openai.APIStatusError], act: Callable[[], None]) -> str | None:
        with pytest.raises(kind) as caught:
            act()
        return caught.value.code

    assert raised(openai.AuthenticationError, lambda: ask("sk-unknown")) == "invalid_api_key"
    narrow = far.key(models=["small"])
    assert raised(openai.PermissionDeniedError, lambda: ask(narrow.secret, "other")) == "model_not_allowed"
    slow = far.key(requests_per_minute=1)
    ask(slow.secret)
    assert raised(openai.RateLimitError, lambda: ask(slow.secret)) == "rate_limit_exceeded"
    poor = far.key(tokens_per_day=1)
    ask(poor.secret)
    assert raised(openai.RateLimitError, lambda: ask(poor.secret)) == "insufficient_quota"
