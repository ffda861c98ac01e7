"""Who is to run, and what a death means for the others: a gang (all or none) or a work list (each on its own).

Pure bookkeeping: a roster starts nothing and ends nothing, it says what is to be done next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from .verdict import Exit

__all__ = ["Gang", "Roster", "Seat", "WorkList"]


class Seat(NamedTuple):
    """A process to start: its rank (a work list: its index) and the slot whose card it gets."""

    rank: int
    slot: int


class Roster(Protocol):
    kind: str
    size: int

    def first(self) -> list[Seat]:
        """Those to start at once, together."""

    def shrink(self, count: int) -> list[int]:
        """Ranks >= `count` are no longer wanted; returns those of them that still run."""

    def left(self, rank: int) -> None:
        """Nothing is left of a rank that was let go."""

    def exited(self, exit_: Exit, *, told: bool = False) -> list[Seat]:
        """Take note of a death; returns those to start now.  Whoever was `told` to stop cannot fail."""

    @property
    def live(self) -> int:
        """How many places it needs."""

    @property
    def failure(self) -> Exit | None:
        """The death that ends the attempt, once there is one."""

    @property
    def main(self) -> Exit | None:
        """The exit that speaks for the attempt."""

    @property
    def complete(self) -> bool: ...


class Gang:
    """Every rank starts at once; the first that fails ends all.  Ranks that were let go by `shrink` may end as they like.

    A rank keeps its place to the end of the gang, also when it has ended well before the others; one that was let go
    keeps it until it has left, and while one below it stays: places are given back from the end.
    """

    kind = "gang"

    def __init__(self, ranks: Sequence[int]) -> None:
        self.size = len(ranks)
        self._wanted = set(ranks)
        self._running = set(ranks)
        self._leaving: set[int] = set()
        self._exits: dict[int, Exit] = {}
        self.failure: Exit | None = None

    def first(self) -> list[Seat]:
        return [Seat(rank, slot) for slot, rank in enumerate(sorted(self._running))]

    def exited(self, exit_: Exit, *, told: bool = False) -> list[Seat]:
        self._running.discard(exit_.rank)
        self._exits[exit_.rank] = exit_
        if exit_.failed and not told and exit_.rank in self._wanted and self.failure is None:
            self.failure = exit_
        return []

    def shrink(self, count: int) -> list[int]:
        """Ranks >= `count` are no longer wanted; returns those of them that still run."""
        self._wanted = {rank for rank in self._wanted if rank < count}
        gone = {rank for rank in self._running if rank >= count}
        self._leaving |= gone
        return sorted(gone)

    def left(self, rank: int) -> None:
        self._leaving.discard(rank)

    @property
    def live(self) -> int:
        return max(self._wanted | self._leaving, default=-1) + 1

    @property
    def main(self) -> Exit | None:
        return self._exits.get(min(self._exits, default=-1))

    @property
    def complete(self) -> bool:
        return not self._running


class WorkList:
    """`completions` indexes, `parallelism` at a time; a failed one is tried again while failures <= `backoff_limit`."""

    kind = "each"

    def __init__(self, *, completions: int, parallelism: int, backoff_limit: int) -> None:
        self.size = min(parallelism, completions)
        self._todo = list(range(completions))
        self._free = list(range(self.size))
        self._running: dict[int, int] = {}  # index -> slot
        self._left = completions
        self._backoff_limit = backoff_limit
        self._failures = 0
        self.failure: Exit | None = None
        self.main: Exit | None = None

    def _next(self) -> list[Seat]:
        seats = []
        while self._free and self._todo and self.failure is None:
            index, slot = self._todo.pop(0), self._free.pop(0)
            self._running[index] = slot
            seats.append(Seat(index, slot))
        return seats

    def first(self) -> list[Seat]:
        return self._next()

    def shrink(self, count: int) -> list[int]:
        return []  # an index is work to be done, not a place to give up

    def left(self, rank: int) -> None:
        pass

    def exited(self, exit_: Exit, *, told: bool = False) -> list[Seat]:
        self._free.append(self._running.pop(exit_.rank))
        if told:
            self.main = self.main or exit_
            return []
        if not exit_.failed:
            self._left -= 1
            self.main = exit_
            return self._next()
        self._failures += 1
        if self._failures > self._backoff_limit:
            self.failure = self.failure or exit_
            return []
        self._todo.insert(0, exit_.rank)
        return self._next()

    @property
    def live(self) -> int:
        return len(self._running)

    @property
    def complete(self) -> bool:
        return self._left == 0 or (self.failure is not None and not self._running)
