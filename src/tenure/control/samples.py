"""What the cards were measured at, over time: a file that is only appended to, and turned over when it is full.

It is read back for the capacity report alone.  A result never comes from here.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenure.domain.ids import Instant
from tenure.telemetry.monitor import CardSample

__all__ = ["Reading", "SampleLog"]

log = logging.getLogger(__name__)

NAME = "cards.jsonl"
SAMPLE_S = 10.0  # between two lines
FULL = 8 << 20  # bytes of one file: about nine days of one card, at one line every ten seconds
KEPT = 8  # full files; with them, the newest


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One look at one card.  None where the card did not tell."""

    card: str
    at: Instant
    utilization: int | None
    memory_used: int | None


class SampleLog:
    """Under `folder`; made when something is first written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written_at = -SAMPLE_S

    def saw(self, samples: Sequence[CardSample]) -> None:
        """What somebody has read, however often: written every ten seconds.  Never raises."""
        now = time.monotonic()
        if now - self._written_at < SAMPLE_S:
            return
        self._written_at = now
        try:
            self.write(samples)
        except OSError as error:
            log.warning("what the cards were measured at cannot be kept: %s", error)

    def write(self, samples: Sequence[CardSample]) -> None:
        """One line each, in one write; what was not measured is not written.  Raises OSError."""
        lines = [
            json.dumps({"at": s.at, "card": s.card, "util": s.utilization, "mem": s.memory_used}, separators=(",", ":"))
            for s in samples
            if s.measured and not (s.utilization is None and s.memory_used is None)
        ]
        if not lines:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / NAME
        self._turn_over(path)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, ("\n".join(lines) + "\n").encode())
        finally:
            os.close(handle)

    def _turn_over(self, path: Path) -> None:
        try:
            if path.stat().st_size < FULL:
                return
        except FileNotFoundError:
            return
        for n in range(KEPT, 0, -1):
            older = self._folder / f"cards.{n}.jsonl"
            newer = path if n == 1 else self._folder / f"cards.{n - 1}.jsonl"
            if newer.exists():
                newer.replace(older)

    def read(self, *, since: Instant) -> Iterator[Reading]:
        """Readings from `since` on, oldest first.  A torn or foreign line is passed over."""
        paths = [self._folder / f"cards.{n}.jsonl" for n in range(KEPT, 0, -1)] + [self._folder / NAME]
        for path in paths:
            try:
                with path.open("rb") as lines:
                    yield from _readings(lines, since)
            except FileNotFoundError:
                continue


def _readings(lines: Iterable[bytes], since: Instant) -> Iterator[Reading]:
    for line in lines:
        try:
            raw = json.loads(line)
            reading = Reading(card=raw["card"], at=raw["at"], utilization=raw["util"], memory_used=raw["mem"])
        except (ValueError, KeyError, TypeError):
            continue
        if isinstance(reading.at, int) and reading.at >= since:
            yield reading
