"""What the loop hears, in the order in which it was said.  Anybody may put something in; one thread takes it out."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from dataclasses import dataclass

from tenure.domain.attempt import Observation, Stop
from tenure.domain.ids import JobId
from tenure.domain.job import JobSpec
from tenure.ledger import JobRow

from .vacating import Lingers, Vacated

__all__ = ["CardsChanged", "Changed", "Drain", "Inbox", "News", "NothingThere", "PolicyChanged", "Submitted", "Wake"]

AT_ONCE = 512  # taken together: one transaction, one round of cycles


@dataclass(frozen=True, slots=True)
class Submitted:
    rows: Sequence[JobRow]
    specs: Sequence[JobSpec]


@dataclass(frozen=True, slots=True)
class Changed:
    """A verb changed this job in the ledger; `stop` says how, where it asked for an end."""

    job: JobId
    stop: Stop | None = None


@dataclass(frozen=True, slots=True)
class NothingThere:
    """The backend was asked to start this job and knows nothing of it."""

    job: JobId


@dataclass(frozen=True, slots=True)
class Drain:
    """The platform is going down: everything that holds quota is asked to leave."""


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    pass


@dataclass(frozen=True, slots=True)
class CardsChanged:
    pass


@dataclass(frozen=True, slots=True)
class Wake:
    """Nothing happened; look at the timers."""


News = (
    Observation | Submitted | Changed | NothingThere | Drain | PolicyChanged | CardsChanged | Lingers | Vacated | Wake
)


class Inbox:
    def __init__(self) -> None:
        self._items: queue.SimpleQueue[News] = queue.SimpleQueue()

    def put(self, item: News) -> None:
        self._items.put(item)

    def take(self, patience_s: float) -> list[News]:
        """All that is there, `AT_ONCE` at most; empty after `patience_s` seconds of silence."""
        items: list[News] = []
        try:
            items.append(self._items.get(timeout=patience_s))
            while len(items) < AT_ONCE:
                items.append(self._items.get_nowait())
        except queue.Empty:
            pass
        return items
