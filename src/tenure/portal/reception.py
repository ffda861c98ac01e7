"""Where submissions are taken in: off the event loop, each read beside the others, all that wait written together.

A thread that has read one and finds another writing leaves it there and goes on to the next, so that a slow working tree
holds up nobody else and no thread waits for the disk but the one that writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from tenure.control import verbs
from tenure.control.app import Platform
from tenure.control.caller import Caller
from tenure.control.intake import Fate, Intake, Submission

__all__ = ["Reception"]

READERS = 40  # most of them only where reading takes long: a tree on a slow disk, git


class Reception:
    """The reception of one portal.  `submit` on its event loop; `close` once the server has ended."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._intake = Intake(platform)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="submit")

    def close(self) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)  # who still reads finds the ledger closed

    async def submit(self, body: Mapping[str, Any], *, caller: Caller, idempotency_key: str | None) -> dict[str, Any]:
        """As `verbs.submit`, without a thread that waits."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[dict[str, Any]] = loop.create_future()

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
                self._intake.put(submission, lambda fate: written(submission, fate))

        self._readers.submit(read)
        return await answered
