"""What the log says of requests that were turned away: who was refused what, and never a flood of it.

`Refusals` is pure: told what happened and when, it answers with the lines to write, and `RefusalLog` writes them.  Promises: the first refusal of a kind is said at once
and the others of a minute as one sum; however many come, and from however many, no more than `KINDS` are told apart within
a minute, so that no more than some fifty short lines are written in one; nothing that a client wrote stands in a line, and
of a token that is not known only its fingerprint.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["KINDS", "MINUTE_S", "Refusal", "RefusalLog", "Refusals"]

log = logging.getLogger("tenure.gateway")

TOLD = frozenset({401, 403, 429})
MINUTE_S = 60.0
KINDS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What refusals have in common that are told as one.  Empty: not known, or none."""

    status: int
    code: str
    token: str = ""  # its name
    fingerprint: str = ""  # of one that nobody knows
    model: str = ""  # one that is declared
    client: str = ""  # an address

    def __str__(self) -> str:
        about = (
            ("token ", self.token),
            ("an unknown token with fingerprint ", self.fingerprint),
            ("model ", self.model),
            ("from ", self.client),
        )
        return ", ".join([f"{self.status} {self.code}", *(word + said for word, said in about if said)])


class Refusals:
    """`now` is steady time in seconds."""

    def __init__(self) -> None:
        self._more: dict[Refusal, int] = {}  # of this minute: how often it came after it was said
        self._began = 0.0

    def saw(self, refusal: Refusal, now: float) -> Iterator[str]:
        """The lines that are due: the sums of a minute that is over, then this one where it is new."""
        yield from self.due(now)
        if not self._more:
            self._began = now
        if refusal in self._more:
            self._more[refusal] += 1
        elif len(self._more) < KINDS:
            self._more[refusal] = 0
            yield f"refused: {refusal}"
        else:
            rest = Refusal(status=refusal.status, code=refusal.code)
            self._more[rest] = self._more.get(rest, 0) + 1

    def due(self, now: float) -> Iterator[str]:
        """The sums of a minute that is over; nothing before that."""
        if self._more and now - self._began >= MINUTE_S:
            over, self._more = self._more, {}
            for refusal, more in over.items():
                if more:
                    yield f"refused {more:,} times more within a minute: {refusal}"


class RefusalLog:
    """Writes them, and the sums of a minute when it is over.  No timer runs while nobody is refused."""

    def __init__(self) -> None:
        self._refusals = Refusals()
        self._timer: asyncio.TimerHandle | None = None

    def saw(self, refusal: Refusal) -> None:
        if refusal.status not in TOLD:
            return
        loop = asyncio.get_running_loop()
        self._write(self._refusals.saw(refusal, loop.time()))
        if self._timer is None:
            self._timer = loop.call_later(MINUTE_S, self._over)

    def close(self) -> None:
        """What is not said yet is."""
        if self._timer is not None:
            self._timer.cancel()
            self._over()

    def _over(self) -> None:
        self._timer = None
        self._write(self._refusals.due(asyncio.get_running_loop().time() + MINUTE_S))

    def _write(self, lines: Iterator[str]) -> None:
        for line in lines:
            log.warning(line)
