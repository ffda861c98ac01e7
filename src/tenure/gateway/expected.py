"""What a request is expected to cost, in model tokens, before anybody knows: for what is set aside while it is on its way,
and for what it costs where its server says nothing.  Pure, and no more than a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["BYTES_A_TOKEN", "DEFAULT_ANSWER", "NOTHING", "WORDS", "Expected", "expected_of"]

BYTES_A_TOKEN = 4
DEFAULT_ANSWER = 1024  # of a request that says no bound
MOST = 10**9  # one that asks for more is not believed to get it
WORDS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"})
"""What answers in words, whatever a model's `inferencePaths` are."""

_BOUNDS = ("max_completion_tokens", "max_tokens", "max_output_tokens", "n_predict")
_INLINE = re.compile(rb"base64,[A-Za-z0-9+/=_-]{64,}")  # an image, say, which is not read as text


@dataclass(frozen=True, slots=True)
class Expected:
    prompt: int = 0
    answer: int = 0

    @property
    def total(self) -> int:
        return self.prompt + self.answer


NOTHING = Expected()


def expected_of(path: str, body: bytes, fields: Mapping[str, Any]) -> Expected:
    """Of a body of JSON, as it came: a token for each four bytes of it, and for the answer the bound that it says.

    Of those that answer in words and say none, `DEFAULT_ANSWER`; of others (embeddings), nothing.
    """
    inline = sum(len(found) for found in _INLINE.findall(body)) if b"base64," in body else 0
    prompt = -(-(len(body) - inline) // BYTES_A_TOKEN)
    bound = next((said for name in _BOUNDS if (said := _count(fields.get(name))) is not None), None)
    answer = bound if bound is not None else DEFAULT_ANSWER if path in WORDS else 0
    choices = max(_count(fields.get("n")) or 1, _count(fields.get("best_of")) or 1) * _prompts(fields.get("prompt"))
    return Expected(min(prompt, MOST), min(answer * choices, MOST))


def _count(said: object) -> int | None:
    return said if type(said) is int and said > 0 else None


def _prompts(said: object) -> int:
    """One, or a list of them: texts or lists of numbers."""
    return len(said) if isinstance(said, list) and said and not isinstance(said[0], int) else 1
