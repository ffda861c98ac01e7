"""What a request may cost, guessed from its body alone."""

from __future__ import annotations

import base64
import json
import secrets
from typing import Any

import pytest

from tenure.gateway.expected import DEFAULT_ANSWER, Expected, expected_of

CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"


def expected(path: str = CHAT, **fields: Any) -> Expected:
    return expected_of(path, json.dumps(fields).encode(), fields)


def test_a_prompt_is_a_token_for_each_four_bytes_of_its_body() -> None:
    assert expected_of(CHAT, b"x" * 400, {}).prompt == 100
    assert expected_of(CHAT, b"x" * 401, {}).prompt == 101


def test_an_image_is_not_read_as_text() -> None:
    data = base64.b64encode(secrets.token_bytes(300_000)).decode()
    message = {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}],
    }
    assert expected(messages=[message, {"role": "user", "content": "what is this?"}]).prompt < 100


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({}, DEFAULT_ANSWER),
        ({"max_tokens": 50}, 50),
        ({"max_completion_tokens": 60, "max_tokens": 50}, 60),
        ({"max_output_tokens": 70}, 70),
        ({"max_tokens": 50, "n": 3}, 150),
        ({"max_tokens": 50, "best_of": 4, "n": 2}, 200),
        ({"n": 2}, 2 * DEFAULT_ANSWER),
        ({"prompt": ["a", "b", "c"], "max_tokens": 10}, 30),
        ({"prompt": [[1, 2], [3]], "max_tokens": 10}, 20),
        ({"prompt": [1, 2, 3], "max_tokens": 10}, 10),
        ({"prompt": [], "max_tokens": 10}, 10),
    ],
)
def test_an_answer_is_as_long_as_it_may_be(fields: dict[str, Any], answer: int) -> None:
    assert expected(**fields).answer == answer


@pytest.mark.parametrize("bound", [None, 0, -1, True, "50", 1.5, [], {}])
def test_a_bound_that_is_none_is_not_taken_for_one(bound: Any) -> None:
    assert expected(max_tokens=bound).answer == DEFAULT_ANSWER
    assert expected(max_tokens=10, n=bound).answer == 10


def test_a_bound_beyond_belief_is_bounded() -> None:
    assert expected(max_tokens=10**30, n=10**30).total < 2 * 10**9


def test_what_does_not_answer_in_words_answers_for_nothing_but_by_its_own_bound() -> None:
    assert expected(EMBEDDINGS, input="some text").answer == 0
    assert expected("/generate", max_tokens=9).answer == 9
