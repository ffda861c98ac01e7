"""The use of tokens, kept over a restart in `$TENURE_HOME/gateway/use.json`: names and numbers, no token.

The first change is written at once and later ones at most five times a second, each time whole.  What a gateway that is
killed outright can lose is the last fifth of a second.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from contextlib import suppress
from pathlib import Path

from .allowance import MINUTE, Allowances, Denied, Headers, Rights

__all__ = ["Uses"]

log = logging.getLogger("tenure.gateway")

PAUSE_S = 0.2
PART = 20  # where there is so much that writing takes long, it takes no more than a twentieth of the time


class Uses:
    """Belongs to the event loop that it is `run` in."""

    def __init__(self, path: Path, *, minute: float = MINUTE) -> None:
        self._path, self._allowances = path, Allowances(minute)
        self._changed = asyncio.Event()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._allowances.restore(json.loads(path.read_bytes()), time.time())
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("%s is not understood, and limits begin anew: %s", path, error)

    def admit(self, rights: Rights, now: float, expected: int) -> Denied | int:
        verdict = self._allowances.admit(rights, now, expected)
        if not isinstance(verdict, Denied):
            self._changed.set()
        return verdict

    def settle(self, name: str, aside: int, tokens: int, now: float) -> None:
        self._allowances.settle(name, aside, tokens, now)
        if tokens:
            self._changed.set()

    def headers(self, rights: Rights, now: float) -> Headers:
        return self._allowances.headers(rights, now)

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._changed.wait()
            began = time.monotonic()
            self.save()
            await asyncio.sleep(max(PAUSE_S, PART * (time.monotonic() - began)))

    def save(self) -> None:
        """Never raises: an answer is worth more than its count."""
        if not self._changed.is_set():
            return
        self._changed.clear()
        fresh = self._path.with_suffix(".new")
        text = json.dumps(self._allowances.kept(time.time()), separators=(",", ":"))
        with suppress(OSError):
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
                file.write(text)
            fresh.replace(self._path)
