"""Clients as people have them: OpenAI's own, with the errors that it raises; and every other way of asking, passed on."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from .conftest import Home, eventually, opened

SERVER = [sys.executable, "-P", str(Path(__file__).with_name("odd_server.py")), "{port}"]
PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/rerank", "/v1/messages", "/v1/audio/transcriptions"]  # fmt: skip


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    folder = tmp_path_factory.mktemp("keyed")
    with opened(folder / "home", TENURE_GATEWAY_TOKENS="1") as home:
        home.declare("small")
        home.declare("huge", gpuMemory="64Gi")
        home.bearer = {"Authorization": f"Bearer {home.tenure('token', 'create', 'reader').strip()}"}
        home.reload()
        yield home


def client(home: Home, key: str, **more: object) -> openai.OpenAI:
    return openai.OpenAI(base_url=home.url, api_key=key, max_retries=0, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("stream", [False, True])
def test_openais_client_raises_what_it_means(keyed: Home, stream: bool) -> None:
    key = keyed.tenure("token", "create", f"all-{stream}".lower()).strip()

    def ask(one: openai.OpenAI, model: str = "small", **fields: object) -> object:
        answer = one.chat.completions.create(model=model, messages=[], stream=stream, extra_body=fields)
        return list(answer) if stream else answer  # type: ignore[call-overload]

    with client(keyed, key) as known:
        assert ask(known)
        with pytest.raises(openai.NotFoundError) as missing:
            ask(known, "smal")
        assert (missing.value.code, missing.value.param, missing.value.type) == ("model_not_found", "model", "invalid_request_error")  # fmt: skip
        with pytest.raises(openai.BadRequestError) as bad:
            ask(known, keep_alive="soon")
        assert bad.value.param == "keep_alive"
        with pytest.raises(openai.InternalServerError) as away:
            ask(known, "huge")
        assert (away.value.status_code, away.value.code, away.value.type) == (503, "model_not_placed", "server_error")
        assert int(away.value.response.headers["retry-after"]) >= 1
    with client(keyed, "sk-wrong") as wrong, pytest.raises(openai.AuthenticationError) as unknown:
        ask(wrong)
    assert (unknown.value.code, unknown.value.type) == ("invalid_api_key", "authentication_error")
    with client(keyed, key, default_headers={"Origin": "https://elsewhere.example"}) as page:
        with pytest.raises(openai.PermissionDeniedError) as foreign:
            ask(page)
        assert (foreign.value.code, foreign.value.type) == ("foreign_origin", "permission_error")
    few = keyed.tenure("token", "create", f"few-{stream}".lower(), "--requests-per-minute", "1").strip()
    with client(keyed, few) as hasty:
        ask(hasty)
        with pytest.raises(openai.RateLimitError) as many:
            ask(hasty)
        assert many.value.type == "rate_limit_error"
        assert int(many.value.response.headers["retry-after"]) >= 1


def test_openais_client_waits_and_asks_again_by_itself(keyed: Home) -> None:
    """It retries 503 after `Retry-After`: who does not want to be held is answered all the same."""
    key = keyed.tenure("token", "create", "patient").strip()
    keyed.rest("POST", "/models/small:sleep")
    keyed.until("small", "asleep")
    with openai.OpenAI(base_url=keyed.url, api_key=key, max_retries=5, default_headers={"X-Tenure-Wait": "0"}) as one:
        answer = one.chat.completions.create(model="small", messages=[])
    assert (answer.choices[0].message.content or "").startswith("Paris")


def test_an_error_in_the_middle_of_a_stream_is_raised_too(keyed: Home) -> None:
    key = keyed.tenure("token", "create", "streams").strip()
    with client(keyed, key) as one:
        one.chat.completions.create(model="small", messages=[])
        stream = one.chat.completions.create(model="small", messages=[], stream=True, extra_body={"die_at": 2})
        words: list[str | None] = []
        with pytest.raises(openai.APIError) as cut:
            words.extend(chunk.choices[0].delta.content for chunk in stream)
    assert words == ["word0 ", "word1 "]
    assert cut.value.code == "upstream_failed"
    eventually(lambda: keyed.model("small")["in_flight"] == 0)


def test_every_other_way_of_asking_is_passed_on(home: Home, tmp_path: Path) -> None:
    home.declare("odd", command=[*SERVER, str(tmp_path / "seen")], inferencePaths=PATHS)
    home.reload()
    for path in ("/v1/responses", "/v1/rerank", "/v1/messages", "/v1/completions", "/v1/embeddings", "/v1/tokenize"):
        body = json.dumps({"model": "odd", "input": ["é"], "unknown": {"kept": [1, None]}}).encode()
        said = home.ask("POST", f"{path}?beta=1", body, headers={"anthropic-version": "2023-06-01"}).json
        assert (said["method"], said["path"], said["size"]) == ("POST", f"{path}?beta=1", len(body))
        assert said["headers"]["anthropic-version"] == "2023-06-01"
    assert home.ask("GET", "/v1/files/7?x=%2F", headers={"X-Tenure-Model": "odd"}).json["path"] == "/v1/files/7?x=%2F"
    assert home.ask("DELETE", "/v1/responses/7", headers={"X-Tenure-Model": "odd"}).json["method"] == "DELETE"
    error = home.chat("odd", status=422, answer={"error": {"message": "no", "type": "t", "param": None, "code": "c"}})
    assert (error.status, error.json["error"]["code"]) == (422, "c")


def test_a_recording_wakes_and_arrives_as_it_was(home: Home, tmp_path: Path) -> None:
    """multipart/form-data: the model is a field of the form, and an alias there is rewritten like any other."""
    home.declare("odd", aliases=["whisper-1"], command=[*SERVER, str(tmp_path / "seen")], inferencePaths=PATHS)
    home.reload()
    with client(home, "sk-none") as one:
        raw = one.audio.transcriptions.with_raw_response.create(
            model="whisper-1", file=("a.wav", bytes(range(256)) * 400, "audio/wav")
        )
    said = json.loads(raw.text)
    assert said["path"] == "/v1/audio/transcriptions"
    assert said["headers"]["content-type"].startswith("multipart/form-data; boundary=")
    assert said["size"] == int(raw.http_request.headers["content-length"]) - len("whisper-1") + len("odd")
    assert home.model("odd")["wakes"] == 1
