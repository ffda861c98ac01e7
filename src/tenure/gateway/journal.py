"""One line of JSON for each request for inference, and its span: what pages count, budgets and advice are read from.

No token, no prompt and no answer ever stands in either.  Both are written once the answer is out, together for all that
ended in one turn of the loop.  docs/models.md has the fields.
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


class Journal:
    """`requests.jsonl` and, beside it, `spans.jsonl`.  Without a running loop each is written at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._requests = Rotated(path, aside=_elsewhere)
        self._spans = Rotated(path.with_name("spans.jsonl"), aside=_elsewhere)
        self._lines: list[dict[str, Any]] = []
        self._ended: list[Span] = []
        self._due = False

    def tidy(self) -> None:
        """Drop what is too old; for a gateway that starts."""
        for file in (self._requests, self._spans):
            _elsewhere(file.tidy)

    def write(self, *, span: Span | None = None, **facts: object) -> None:
        self._lines.append({"at": round(time.time(), 3), **facts})
        if span is not None:
            self._ended.append(span)
        if not self._due:
            try:
                asyncio.get_running_loop().call_soon(self.flush)
                self._due = True
            except RuntimeError:
                self.flush()

    def flush(self) -> None:
        """Never raises: an answer is worth more than its line."""
        lines, self._lines, spans, self._ended, self._due = self._lines, [], self._ended, [], False
        if lines:
            self._requests.write(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
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
