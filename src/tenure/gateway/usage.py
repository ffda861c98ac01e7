"""How many model tokens an answer cost: what the server says as its usage; of a stream that says none, the events with
words in them, and of any other what was expected.

Reads the bytes as they pass and keeps the last of them alone.  Inside a JSON text quotes are escaped,
so that an answer cannot talk about its own usage.
"""

from __future__ import annotations

import re

from .expected import BYTES_A_TOKEN, NOTHING, Expected

__all__ = ["Usage"]

SEAM = 64  # bytes of a piece that are read again with the next one: a number may lie across both
LINE = 256 * 1024  # an event longer than this is counted by its beginning

_SAID = re.compile(rb'"(prompt|input|completion|output)_tokens"\s*:\s*(\d{1,15})')
_WORDS = re.compile(
    rb'^data:[^\n]*?"(?:content|reasoning_content|reasoning|text|delta|thinking|arguments|partial_json)"\s*:\s*"[^"]',
    re.MULTILINE,
)


class Usage:
    """Of one answer."""

    __slots__ = ("_line", "_seam", "_size", "_stream", "events", "said")

    def __init__(self, *, stream: bool) -> None:
        self._stream = stream
        self._seam = self._line = b""
        self._size = 0
        self.events = 0  # of a stream, those with words in them
        self.said: dict[str, int] = {}  # prompt_tokens and completion_tokens; the server's last word on each

    def saw(self, piece: bytes) -> None:
        """The next bytes of it, cut anywhere."""
        self._size += len(piece)
        text = self._seam + piece
        for match in _SAID.finditer(text):
            asked = match[1] in (b"prompt", b"input")
            self.said["prompt_tokens" if asked else "completion_tokens"] = int(match[2])
        self._seam = text[-SEAM:]
        if self._stream:
            whole, newline, rest = piece.rpartition(b"\n")
            if newline:
                self.events += len(_WORDS.findall(self._line + whole))
                self._line = rest
            elif len(self._line) < LINE:
                self._line += rest

    def tokens(self, *, whole: bool, expected: Expected = NOTHING) -> int:
        """Of prompt and answer together.  `whole`: the answer came to its end, where usage is said; else its events count
        at least.  Of what the server does not say, what was `expected`: of an answer no more than its bytes hold."""
        answer = self.said.get("completion_tokens")
        if whole and not self._stream and not self.said:
            answer = min(expected.answer, -(-self._size // BYTES_A_TOKEN))
        elif answer is None or not whole:
            answer = max(answer or 0, self.events)
        return self.said.get("prompt_tokens", expected.prompt) + answer
