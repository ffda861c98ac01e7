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


def decoded(home: Home) -> int | None:
    """How many tokens of an answer there are so far; None where it works on none."""
    (slot,) = home.ask("GET", "/slots", headers={"X-Tenure-Model": "native"}).json
    return int(slot["next_token"][0]["n_decoded"]) if slot["is_processing"] else None


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

        stream = client.chat.completions.create(
            model="native", messages=[{"role": "user", "content": "Tell me a long story."}], stream=True, max_tokens=900,
            extra_body={"ignore_eos": True},
        )  # fmt: skip
        next(iter(stream))
        assert decoded(native) is not None
        stream.close()
        seen = [0]
        eventually(lambda: (now := decoded(native)) is None or seen.append(now))
        assert seen[-1] < 800, "not to the end of the story"
