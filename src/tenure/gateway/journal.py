"""One line of JSON for each request for inference, and its span: what pages count, budgets and advice are read from.

No token, no prompt and no answer ever stands in either.  Both are written once the answer is out, at once or, where
there are many, some milliseconds later.  docs/models.md has the fields.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .rotation import Rotated
from .spans import Span, exported

__all__ = ["Journal"]

PAUSE_S = 0.01  # where requests come thick and fast, those of so long are written together
_json = json.JSONEncoder(separators=(",", ":")).encode


class Journal:
    """`requests.jsonl` and, beside it, `spans.jsonl`.  Without a running loop each is written at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._requests = Rotated(path, aside=_elsewhere)
        self._spans = Rotated(path.with_name("spans.jsonl"), aside=_elsewhere)
        self._lines: list[dict[str, Any]] = []
        self._ended: list[Span] = []
        self._due, self._flushed = False, -1.0

    def tidy(self) -> None:
        """Drop what is too old; for a gateway that starts."""
        for file in (self._requests, self._spans):
            _elsewhere(file.tidy)

    def write(self, *, span: Span | None = None, **facts: object) -> None:
        self._lines.append({"at": round(time.time(), 3), **facts})
        if span is not None:
            self._ended.append(span)
        if self._due:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        self._due, now = True, loop.time()
        if now - self._flushed > PAUSE_S:
            loop.call_soon(self.flush)
        else:
            loop.call_later(PAUSE_S, self.flush)
        self._flushed = now

    def flush(self) -> None:
        """Never raises: an answer is worth more than its line."""
        lines, self._lines, spans, self._ended, self._due = self._lines, [], self._ended, [], False
        if lines:
            self._requests.write([(_json(line) + "\n").encode() for line in lines])
        if spans:
            self._spans.write([exported(spans)])

    def close(self) -> None:
        self.flush()
        self._requests.close()
        self._spans.close()


def _elsewhere(work: Callable[[], None]) -> None:
    """In a thread where there is a loop to go on."""
    try:
        asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:
        work()
