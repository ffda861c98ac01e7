"""llama.cpp's own HTTP server behind the gateway: its 503 while loading, its chunks, and how it ends connections."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from ..gateway.conftest import Home, eventually
from .conftest import QUESTION

KEEP_ALIVE_S = 5.0  # after that it closes a connection that nobody uses, as its answers say


@pytest.fixture
def native(real: Home) -> Iterator[Home]:
    command = [sys.executable, "-P", str(Path(__file__).with_name("llama_cpp.py")), "{port}"]
    real.declare("native", command=command, stopTimeout="10s")
    real.reload()
    yield real
    real.rest("POST", "/models/native:sleep")
    real.until("native", "asleep", timeout=30)
    (real.path / "policy" / "native.json").unlink()
    real.rest("POST", "/policy:reload")


def slots(home: Home) -> list[bool]:
    answer = home.ask("GET", "/slots", headers={"X-Tenure-Model": "native"})
    return [bool(slot["is_processing"]) for slot in answer.json]


def test_it_wakes_streams_and_outlives_its_own_connections(native: Home) -> None:
    ask = [{"role": "user", "content": QUESTION}]
    with openai.OpenAI(base_url=native.url, api_key="sk-anything", max_retries=0, timeout=90) as client:
        with client.chat.completions.create(
            model="native", messages=ask, stream=True, temperature=0, max_tokens=24  # type: ignore[arg-type]
        ) as stream:  # fmt: skip
            words = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
        assert "Paris" in "".join(words)
        assert len(words) > 5
        props = {"X-Tenure-Model": "native"}
        assert {native.ask("GET", "/props", headers=props).status for _ in range(120)} == {200}  # it ends each at 100
        time.sleep(KEEP_ALIVE_S + 0.5)
        answer = client.chat.completions.create(model="native", messages=ask, temperature=0, max_tokens=24)  # type: ignore[arg-type]
        assert "Paris" in (answer.choices[0].message.content or "")

        long = [{"role": "user", "content": "Tell me a long story."}]
        stream = client.chat.completions.create(model="native", messages=long, stream=True, max_tokens=900)  # type: ignore[arg-type, assignment]
        next(iter(stream))
        assert slots(native) == [True]
        stream.close()
        eventually(lambda: slots(native) == [False], timeout=5)  # not to the end of the story
