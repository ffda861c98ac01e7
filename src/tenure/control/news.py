"""News of committed events: the number of the newest one, for whoever waits for the next."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["News"]


class News:
    """A cursor that only grows.  Streams and long polls sleep on it instead of asking the ledger again and again."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._cursor = 0
        self._subscribers: list[Callable[[int], None]] = []

    @property
    def cursor(self) -> int:
        return self._cursor

    def publish(self, cursor: int) -> None:
        """Called after a commit, from the committing thread.  A subscriber must return at once."""
        with self._changed:
            if cursor <= self._cursor:
                return
            self._cursor = cursor
            self._changed.notify_all()
            subscribers = tuple(self._subscribers)
        for callback in subscribers:
            callback(cursor)

    def wait(self, after: int, timeout: float) -> int:
        """Block until the cursor is past `after`, or `timeout` seconds; returns the cursor."""
        with self._changed:
            self._changed.wait_for(lambda: self._cursor > after, timeout)
            return self._cursor

    def subscribe(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """Register; the returned callable ends it.  Nothing is promised about the thread that calls."""
        with self._changed:
            self._subscribers.append(callback)

        def unsubscribe() -> None:
            with self._changed:
                if callback in self._subscribers:
                    self._subscribers.remove(callback)

        return unsubscribe
