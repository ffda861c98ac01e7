"""Real networks behind the gateway, asked with OpenAI's client."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from ..gateway.conftest import Home, eventually, lines
from .conftest import QUESTION


def ask(client: openai.OpenAI, model: str, question: str = QUESTION, tokens: int = 24) -> str:
    answer = client.chat.completions.create(
        model=model, max_tokens=tokens, messages=[{"role": "user", "content": question}]
    )
    return answer.choices[0].message.content or ""


def story(client: openai.OpenAI, *, tokens: int) -> openai.Stream[ChatCompletionChunk]:
    """So many tokens, whether the story is over or not."""
    return client.chat.completions.create(
        model="assistant", max_tokens=tokens, stream=True, extra_body={"ignore_eos": True},
        messages=[{"role": "user", "content": "Tell me a story."}],
    )  # fmt: skip


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def test_a_question_wakes_the_language_model_and_is_answered(home: Home, client: openai.OpenAI) -> None:
    assert home.model("assistant")["state"] == "asleep"
    wakes = home.model("assistant")["wakes"]
    answer = client.chat.completions.create(
        model="default", max_tokens=24, messages=[{"role": "user", "content": QUESTION}]
    )
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.model == "assistant"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 20
    row = home.model("assistant")
    assert (row["state"], row["wakes"]) == ("ready", wakes + 1)

    phases = home.ask("GET", "/phases", headers={"X-Tenure-Model": "assistant"}).json
    order = ("process_started_at", "main_at", "imports_done_at", "load_done_at", "ready_at", "first_token_at")
    assert [phases[name] for name in order] == sorted(phases[name] for name in order)
    assert phases["compile_done_at"] is None
    assert abs(phases["first_token_at"] - time.time()) < 60


def test_the_same_question_streams_the_same_answer(home: Home, client: openai.OpenAI) -> None:
    whole = ask(client, "assistant")
    journal = home.path / "gateway" / "requests.jsonl"
    before = len(lines(journal))
    with client.chat.completions.create(
        model="assistant", max_tokens=24, stream=True, stream_options={"include_usage": True},
        messages=[{"role": "user", "content": QUESTION}],
    ) as stream:  # fmt: skip
        chunks = list(stream)
    words = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert "".join(words) == whole
    assert len(words) > 4
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens >= len(words)
    line = eventually(lambda: [r for r in lines(journal)[before:] if r["streamed"]])[-1]
    assert line["completion_tokens"] == chunks[-1].usage.completion_tokens


def test_related_texts_are_nearer_than_unrelated_ones(home: Home, client: openai.OpenAI) -> None:
    texts = ["A cat sits on the mat.", "A kitten rests on the rug.", "The central bank raised its interest rate."]
    answer = client.embeddings.create(model="embedder", input=texts)
    cat, kitten, bank = (one.embedding for one in answer.data)
    assert {len(cat), len(kitten), len(bank)} == {384}
    assert cosine(cat, kitten) > 0.5
    assert cosine(cat, bank) < 0.2
    plain = client.embeddings.create(model="embedder", input=texts[0], encoding_format="float").data[0].embedding
    assert cosine(cat, plain) == pytest.approx(1, abs=1e-5)  # beside longer texts or alone
    assert answer.usage.prompt_tokens > 20


def test_what_the_server_refuses_reaches_the_client_as_its_refusal(home: Home, client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="exceeds the available context"):
        ask(client, "assistant", "word " * 3000)
    with pytest.raises(openai.BadRequestError, match="none of them empty"):
        client.embeddings.create(model="embedder", input=[])
    assert "Paris" in ask(client, "assistant")


def test_a_client_that_leaves_stops_the_real_generation(home: Home, client: openai.OpenAI) -> None:
    def seconds() -> float:
        began = time.monotonic()
        assert "Paris" in ask(client, "assistant")
        return time.monotonic() - began

    ask(client, "assistant")
    before = seconds()
    stream = story(client, tokens=900)
    next(iter(stream))
    stream.close()
    after = seconds()  # one answer at a time: it would wait for the end of the story, which is forty times as long
    assert after < 10 * max(before, seconds())
    assert home.model("assistant")["state"] == "ready"


def test_training_takes_the_share_while_it_streams_and_gives_it_back(home: Home, client: openai.OpenAI) -> None:
    ask(client, "assistant")
    embedder = home.model("embedder")["run_id"]
    run = home.model("assistant")["run_id"]
    with story(client, tokens=160) as stream:
        chunks = iter(stream)
        words = [next(chunks)]
        asked = {"argv": ["sleep", "2"], "name": "training", "priority": "training", "shares": 7, "gpu_memory": "8Gi"}
        training = home.rest("POST", "/jobs", asked)["id"]
        words += list(chunks)  # what was being answered when it was asked to leave is answered to its end
    streamed_until = time.time()
    assert words[-1].choices[0].finish_reason == "length"
    held = client.chat.completions.create(  # the share is the training's for two seconds
        model="assistant", max_tokens=24, messages=[{"role": "user", "content": QUESTION}]
    )
    assert "Paris" in (held.choices[0].message.content or "")

    job = json.loads(home.tenure("show", training, "-o", "json"))
    assert (job["state"], job["outcome"]) == ("ended", "completed")
    record = (home.path / "runs" / run / "record.jsonl").read_text().splitlines()
    stops = [one for one in map(json.loads, record) if one["kind"] == "stop_requested"]
    closed = json.loads(record[-1])
    assert [(one["stop"], one["by"]) for one in stops] == [("preempt", training)]
    (preempted,) = [one for one in home.events("JobPreempted") if one["data"]["by"] == training]
    assert datetime.fromisoformat(preempted["at"]).timestamp() < streamed_until, "in the middle of its story"
    assert (closed["kind"], closed["outcome"]) == ("closed", "interrupted")
    back = home.model("assistant")
    assert back["state"] == "ready"
    assert back["run_id"] != run
    assert home.model("embedder")["run_id"] == embedder, "the resident one was not touched"


def test_of_two_language_models_one_fits_and_the_other_says_why(home: Home, client: openai.OpenAI) -> None:
    ask(client, "assistant")
    first, embedder = home.model("assistant")["job_id"], home.model("embedder")["run_id"]
    with ThreadPoolExecutor(1) as pool:
        with story(client, tokens=900) as stream:
            chunks = iter(stream)
            next(chunks)
            waiting = pool.submit(ask, client, "second")
            row = home.until("second", "queued")
            why = home.rest("GET", f"/jobs/{row['job_id']}/why")
            (blocker,) = why["blockers"]
            assert (blocker["resource"], blocker["asked"], blocker["free"]) == ("nvidia.com/gpu", 1, 0)
            assert "assistant" in [holder["name"] for holder in blocker["held_by"]]
            assert {"change": f"when {first} ends", "effect": "it starts"} in why["counterfactuals"]
            began, more = time.monotonic(), [next(chunks)]
            while time.monotonic() - began < 1.5:  # more than the quiet second after which it leaves for the other
                more.append(next(chunks))
            assert not waiting.done()
            assert {chunk.choices[0].finish_reason for chunk in more} == {None}, "what was under way was not cut for it"
        assert "Paris" in waiting.result(timeout=60)  # who listened has left
    assert home.model("second")["state"] == "ready"
    assert home.model("assistant")["state"] == "asleep"
    assert home.model("embedder")["run_id"] == embedder, "the resident one made no room"
