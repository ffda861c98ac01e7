"""What is new about the models: lines in the diary, and a nudge for whoever watches the table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tenure.domain.events import Event, EventKind
from tenure.domain.model import ModelState

from .kept import Kept

if TYPE_CHECKING:
    from .app import Platform

__all__ = ["ModelNews"]


class ModelNews:
    """`version` grows with everything that a row of the table says.  Safe from any thread."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._lock = threading.Lock()
        self._subscribers: list[Callable[[], None]] = []
        self.version = 1

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Called, from any thread, when anything about a model has changed; the returned callable ends it."""
        with self._lock:
            self._subscribers.append(callback)

        def unsubscribe() -> None:
            with self._lock:
                if callback in self._subscribers:
                    self._subscribers.remove(callback)

        return unsubscribe

    def tell(self) -> None:
        with self._lock:
            self.version += 1
            subscribers = tuple(self._subscribers)
        for callback in subscribers:
            callback()

    def became(self, kept: Kept, state: ModelState, reason: str, message: str, **data: object) -> None:
        """Say it once: a line in the diary for a new state, and a nudge for a new word about it."""
        before = (kept.state, kept.reason, kept.message)
        kept.reason, kept.message = reason, message
        if state is not kept.state:
            was, kept.state = kept.state, state
            text = f"{kept.model.name} is {state}" + (f": {message}" if message else "")
            self.write(
                [self.line(EventKind.MODEL_CHANGED, kept, text, state=str(state), was=str(was), reason=reason, **data)]
            )
        if (state, reason, message) != before:
            self.tell()

    def line(self, kind: EventKind, kept: Kept, message: str, **data: object) -> Event:
        data = {"model": kept.model.name, **data}
        return Event(kind=kind, at=self._platform.clock.now(), job_id=kept.job, run_id=kept.run, message=message, data=data)  # fmt: skip

    def write(self, lines: Sequence[Event]) -> None:
        if lines:
            with self._platform.ledger.transaction(durable=False) as tx:
                for line in lines:
                    tx.event(line)
