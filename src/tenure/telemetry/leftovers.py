"""What a run has left on its cards: processes of its own that still live, and memory that nobody is listed for.

A look is judged against what the card had before: a driver keeps some memory for itself, and gives the rest back a few
hundred milliseconds after its process.  Where the driver does not tell (another namespace, no numbers by process), nothing
is claimed: `unexplained` is None.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tenure.domain.ids import CardId

from .nvml import CardSample
from .owners import Holding, OwnerKind, Owners, lives

__all__ = ["SLACK", "Floors", "Leftover"]

SLACK = 256 << 20  # bytes: below this a driver's own books are not exact
SLACK_EACH = 64 << 20  # more for each process of others: what its context costs is not all listed under it


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """One look at one card after a run has ended.  Amounts are bytes.

    `survivors` are processes of the run that live and are listed.  `unexplained` is what is in use, above what was before,
    and above what is listed for anybody who lives; None where that cannot be told.  `error` says why no look was possible.
    """

    card: CardId
    survivors: tuple[Holding, ...] = ()
    others: tuple[Holding, ...] = ()
    used: int | None = None
    unexplained: int | None = None
    slack: int = SLACK
    error: str = ""
    lost: bool = False  # the card is gone, and with it what was on it

    @property
    def came_back(self) -> bool:
        """Is there no sign that memory of the run is still taken?"""
        return not self.survivors and not self.error and (self.unexplained or 0) <= self.slack


class Floors:
    """Judges looks at cards.  The least that a card ever had in use for nobody is what it needs for itself.

    Not for several threads at once.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._owners = Owners(proc)
        self._floors: dict[CardId, int] = {}
        self._last: dict[CardId, int] = {}
        self._sees = False  # a listed pid was found in /proc as a job's: driver and we number processes alike

    def look(self, sample: CardSample, *, run_dir: str, alone: bool) -> Leftover:
        """What is left of the run of `run_dir` on a card.  `alone`: nobody else of ours has a place there."""
        if sample.error and sample.memory_used is None:
            return Leftover(card=sample.card, error=sample.error, lost=sample.lost)
        survivors, others = self._listed(sample, run_dir)
        unexplained = self._unexplained(sample, (*survivors, *others), alone=alone)
        if unexplained is not None:
            unexplained -= self._floor(sample.card, unexplained)
        return Leftover(
            card=sample.card,
            survivors=survivors,
            others=others,
            used=sample.memory_used,
            unexplained=unexplained,
            slack=SLACK + SLACK_EACH * len(others),
            error="" if sample.processes is not None else sample.error or "the driver lists no processes",
        )

    def saw(self, samples: Sequence[CardSample]) -> None:
        """Looks at other times: they tell what a card has in use for nobody."""
        for sample in samples:
            if sample.measured and sample.memory_used is not None:
                self.look(sample, run_dir="", alone=True)
        self._owners.keep_only(process.pid for sample in samples for process in sample.processes or ())

    def accept(self, leftover: Leftover) -> None:
        """Nobody gives it back: from now on it counts as the card's own."""
        if leftover.unexplained:
            self._floors[leftover.card] += leftover.unexplained
            self._last[leftover.card] = self._floors[leftover.card]

    def _floor(self, card: CardId, now: int) -> int:
        """Lowered by two looks in a row: the two numbers that one look compares are not read at one moment."""
        last, self._last[card] = self._last.get(card, now), now
        floor = min(self._floors.get(card, now), max(last, now))
        self._floors[card] = floor
        return min(floor, now)

    def _listed(self, sample: CardSample, run_dir: str) -> tuple[tuple[Holding, ...], tuple[Holding, ...]]:
        """Processes of the run, and those of others; who is listed and not there any more is nobody."""
        mine, others = list[Holding](), list[Holding]()
        real = os.path.realpath(run_dir) if run_dir else ""
        for process in sample.processes or ():
            if not lives(process.pid, self._proc):
                continue
            owner = self._owners.owner(process.pid)
            holding = Holding(card=sample.card, pid=process.pid, memory=process.memory, owner=owner)
            self._sees = self._sees or owner.kind is OwnerKind.JOB
            is_mine = bool(run_dir) and owner.run_dir in (run_dir, real)
            (mine if is_mine else others).append(holding)
        return tuple(mine), tuple(others)

    def _unexplained(self, sample: CardSample, living: tuple[Holding, ...], *, alone: bool) -> int | None:
        if sample.memory_used is None or sample.processes is None or any(h.memory is None for h in living):
            return None
        if not alone and not self._sees:
            return None  # what the others hold may be listed under numbers that mean nothing here, or not at all
        return max(0, sample.memory_used - sum(h.memory or 0 for h in living))
