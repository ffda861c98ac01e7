"""Where submissions are taken in: off the event loop, each read beside the others, all that wait written together.

A thread that has read one and finds another writing leaves it there and goes on to the next, so that a slow working tree
holds up nobody else and no thread waits for the disk but the one that writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tenure.control import verbs
from tenure.control.app import Platform
from tenure.control.caller import Caller
from tenure.control.intake import Fate, Intake, Submission
from tenure.domain.errors import Unavailable

from .readers import Readers

__all__ = ["Reception"]

READERS = 40  # most of them only where reading takes long: a tree on a slow disk, git


class Reception:
    """The reception of one portal.  `submit` and `end` on its event loop; `close` once the server has ended."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._intake = Intake(platform)
        self._readers = Readers(READERS)
        self._over = False
        self._asked: dict[asyncio.Future[dict[str, Any]], list[None]] = {}

    def end(self) -> None:
        """Nothing more is taken in.  What is still being read is refused; what waits to be written is answered as ever."""
        self._over = True
        for answered, turn in self._asked.items():
            if _take(turn) and not answered.done():
                answered.set_exception(_over())

    def close(self) -> None:
        self._readers.close()  # who still reads finds the ledger closed

    async def submit(self, body: Mapping[str, Any], *, caller: Caller, idempotency_key: str | None) -> dict[str, Any]:
        """As `verbs.submit`, without a thread that waits.  Raises Unavailable when the platform stops meanwhile."""
        if self._over:
            raise _over()
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[dict[str, Any]] = loop.create_future()
        turn = [None]  # whoever takes it decides: the thread that has read the request, or the end

        def settle(result: dict[str, Any] | None, error: Exception | None) -> None:
            if answered.done():  # cancelled: the server did not wait any longer
                return
            if error is not None:
                answered.set_exception(error)
            elif result is not None:
                answered.set_result(result)

        def tell(result: dict[str, Any] | None, error: Exception | None) -> None:
            with suppress(RuntimeError):  # the loop has closed: nobody listens any more
                loop.call_soon_threadsafe(settle, result, error)

        def written(submission: Submission, fate: Fate) -> None:
            try:
                tell(verbs.answer(submission, fate), None)
            except Exception as error:
                tell(None, error)

        def read() -> None:
            try:
                submission = verbs.prepared(self._platform, body, caller=caller, idempotency_key=idempotency_key)
            except Exception as error:
                tell(None, error)
            else:
                if _take(turn):
                    self._intake.put(submission, lambda fate: written(submission, fate))

        self._asked[answered] = turn
        self._readers.submit(read)
        try:
            return await answered
        finally:
            del self._asked[answered]


def _take(turn: list[None]) -> bool:
    """True for the first who asks, on whichever thread."""
    try:
        turn.pop()
    except IndexError:
        return False
    return True


def _over() -> Unavailable:
    return Unavailable("the platform is going down; nothing was submitted", code="GoingDown")
