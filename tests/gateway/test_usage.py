"""What an answer cost, read off bytes that may be cut anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenure.gateway.expected import NOTHING, Expected
from tenure.gateway.request import Request
from tenure.gateway.usage import Usage


def event(**body: Any) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def delta(text: str | None, **more: Any) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text, **more}}])


def cost(answer: bytes, size: int, *, stream: bool, whole: bool = True, expected: Expected = NOTHING) -> int:
    usage = Usage(stream=stream)
    for at in range(0, len(answer), size):
        usage.saw(answer[at : at + size])
    return usage.tokens(whole=whole, expected=expected)


STREAM = delta("", role="assistant") + delta("one ") + b": ping\n\n" + delta("two") + delta(None, reasoning_content="so") + event(choices=[{"delta": {}, "finish_reason": "stop"}])  # fmt: skip
DONE = b"data: [DONE]\n\n"
CHAT = json.dumps({"choices": [{"message": {"content": 'say "prompt_tokens": 900, "completion_tokens": 900'}}], "usage": {"prompt_tokens": 31, "completion_tokens": 12, "total_tokens": 43}, "timings": {"x": "y" * 9000}}).encode()  # fmt: skip


@pytest.mark.parametrize("size", [1, 7, 100, 10**6])
class TestAnyPieces:
    def test_a_streams_events_with_words_are_counted_where_it_says_no_usage(self, size: int) -> None:
        assert cost(STREAM + DONE, size, stream=True) == 3

    def test_its_usage_is_believed_where_it_says_one(self, size: int) -> None:
        said = event(choices=[], usage={"prompt_tokens": 20, "completion_tokens": 2, "total_tokens": 22})
        assert cost(STREAM + said + DONE, size, stream=True) == 22

    def test_a_client_that_left_early_pays_what_it_heard(self, size: int) -> None:
        begun = event(type="message_start", message={"usage": {"input_tokens": 20, "output_tokens": 1}})
        heard = b"".join(event(type="content_block_delta", delta={"type": "text_delta", "text": "w"}) for _ in range(5))
        assert cost(begun + heard, size, stream=True, whole=False) == 25
        ended = event(type="message_delta", usage={"output_tokens": 9})
        assert cost(begun + heard + ended, size, stream=True) == 29

    def test_a_plain_answer_says_it_and_its_words_cannot(self, size: int) -> None:
        assert cost(CHAT, size, stream=False) == 43

    def test_embeddings_say_it_before_much_data(self, size: int) -> None:
        body = {"usage": {"prompt_tokens": 8, "total_tokens": 8}, "data": [{"embedding": [0.25] * 5000}]}
        assert cost(json.dumps(body).encode(), size, stream=False) == 8

    def test_what_is_not_said_costs_what_was_expected(self, size: int) -> None:
        expected = Expected(prompt=40, answer=100)
        assert cost(STREAM + DONE, size, stream=True, expected=expected) == 40 + 3
        assert cost(STREAM, size, stream=True, whole=False, expected=expected) == 40 + 3
        plain = b'{"choices": [{"message": {"content": "%s"}}]}'
        assert cost(plain % (b"x" * 4000), size, stream=False, expected=expected) == 40 + 100
        assert cost(plain % b"yes", size, stream=False, expected=expected) == 40 + 12, "no more than its bytes hold"
        assert cost(b'{"data": [{"embedding": [0.5]}]}', size, stream=False, expected=Expected(prompt=9)) == 9

    def test_what_is_said_counts_however_much_was_expected(self, size: int) -> None:
        expected = Expected(prompt=4000, answer=4000)
        assert cost(CHAT, size, stream=False, expected=expected) == 43
        said = event(choices=[], usage={"prompt_tokens": 20, "completion_tokens": 2})
        assert cost(STREAM + said + DONE, size, stream=True, expected=expected) == 22
        body = {"usage": {"prompt_tokens": 8, "total_tokens": 8}, "data": [{"embedding": [0.25] * 5000}]}
        assert cost(json.dumps(body).encode(), size, stream=False, expected=expected) == 8

    def test_an_error_costs_nothing(self, size: int) -> None:
        assert cost(b'{"error": {"message": "no", "code": null}}', size, stream=False) == 0


def test_tools_reasoning_completions_and_responses_count() -> None:
    events = [
        event(choices=[{"delta": {"tool_calls": [{"function": {"arguments": '{"a'}}]}}]),
        event(choices=[{"text": "word"}]),
        event(type="response.output_text.delta", delta="word"),
        event(choices=[{"delta": {"reasoning": "hm"}}]),
    ]
    assert cost(b"".join(events), 10**6, stream=True) == len(events)


def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    usage = Usage(stream=True)
    for _ in range(100):
        usage.saw(b"x" * 65536)
    assert len(usage._line) < 400_000


@pytest.mark.parametrize(
    ("facts", "answer", "price"),
    [
        ({"sent_at": None}, b"", 0),  # refused before it came to a server
        ({"sent_at": None, "left": True}, b"", 0),
        ({"sent_at": 1.0}, b"", 0),  # its server ended the connection, twice
        ({"sent_at": 1.0, "left": True}, b"", 40),  # its client did not wait: the prompt is being read
        ({"sent_at": 1.0, "answered": 200, "left": True, "stream": True}, STREAM, 43),
        ({"sent_at": 1.0, "answered": 200, "stream": True, "facts": {"cut": True}}, STREAM, 43),
        ({"sent_at": 1.0, "answered": 200, "stream": True}, STREAM + DONE, 43),
        ({"sent_at": 1.0, "answered": 200}, CHAT, 43),
        ({"sent_at": 1.0, "answered": 200}, b'{"choices": []}', 44),
        ({"sent_at": 1.0, "answered": 500}, b'{"error": {"message": "out of memory"}}', 0),
        ({"sent_at": 1.0, "answered": 400}, CHAT, 43),  # it says so itself
    ],
)
def test_a_request_costs_what_its_server_did_for_it(facts: dict[str, Any], answer: bytes, price: int) -> None:
    async def send(_: object) -> None: ...

    request = Request(1, {}, send, "POST", "/v1/chat/completions", 0.0, expected=Expected(prompt=40, answer=100))
    for name, value in facts.items():
        setattr(request, name, value)
    if answer:
        request.saw(answer)
    assert request.cost() == price
