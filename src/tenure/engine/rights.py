"""Rights beyond Kueue: who may not be taken yet, and who has waited long enough to go first.  All off by default.

A minimum runtime spares a holder that has just begun.  The livelock rule spares whoever holds the place once a pair has
taken it from each other too often.  Ageing moves the old forward in line, a step at a time and for all at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.options import EngineOptions
from tenure.domain.plan import Livelock

from .items import Item
from .spelling import spell_instant, spell_span

__all__ = ["Rights", "Spared"]

_Pair = frozenset[WorkloadKey]


@dataclass(frozen=True, slots=True)
class Spared:
    """Why a candidate may not be taken, and until when."""

    because: str
    until: Instant
    livelock: bool = False


class Rights:
    """Belongs to one engine.  `stirs_at` is when somebody who was spared no longer is: then parked work is tried again."""

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        self.now = Instant(0)
        self.tick = Instant(0)
        self.stirs_at: Instant | None = None
        self.growing = False  # somebody who waits has not the most of its age yet
        self.personal = False  # a refusal since this was last cleared depends on who asks, and not on its form alone
        self.takes: dict[_Pair, list[tuple[Instant, WorkloadKey]]] = {}
        self._announced: dict[_Pair, Instant] = {}
        self._found: list[Livelock] = []

    # -- time ---------------------------------------------------------------------------------------------------

    def advance(self, now: Instant) -> tuple[bool, bool]:
        """(has the line to be ordered anew, has parked work to be tried again)"""
        self.now = now
        stirred = self.stirs_at is not None and self.stirs_at <= now
        if stirred:
            self.stirs_at = None
            self._announced = {pair: until for pair, until in self._announced.items() if until > now}
        ageing = self.options.ageing
        if ageing is None or now - self.tick < ageing.every_us:
            return False, stirred
        self.tick = Instant(now // ageing.every_us * ageing.every_us)
        self.growing = False
        return True, stirred

    def next_alarm(self) -> Instant | None:
        due = [] if self.stirs_at is None else [self.stirs_at]
        if self.options.ageing is not None and self.growing:
            due.append(Instant(self.tick + self.options.ageing.every_us))
        return min(due, default=None)

    def boost(self, item: Item) -> int:
        """How much further forward in line its age puts it."""
        ageing = self.options.ageing
        if ageing is None:
            return 0
        age = min(ageing.most, ageing.step * (max(0, self.tick - item.ts) // ageing.every_us))
        self.growing = self.growing or age < ageing.most
        return age

    # -- taking -------------------------------------------------------------------------------------------------

    def allows(self, preemptor: Item, candidate: Item) -> bool:
        """May it be a candidate at all?  The priority rules come on top.  Remembers when a no would become a yes."""
        spared = self.spares(preemptor, candidate)
        if spared is None:
            return True
        self.stirs_at = spared.until if self.stirs_at is None else min(self.stirs_at, spared.until)
        if spared.livelock:
            self.personal = True
            self._announce(preemptor, candidate, spared)
        return False

    def spares(self, preemptor: Item, candidate: Item) -> Spared | None:
        if candidate.evicting:
            return None  # it is leaving already
        least = self.options.min_runtime_us
        if least and self.now - candidate.reserved_at < least:
            ran = spell_span(max(0, self.now - candidate.reserved_at))
            text = f"minRuntime: it has had its place for {ran} of the {spell_span(least)} that nobody may take it"
            return Spared(text, Instant(candidate.reserved_at + least))
        rule = self.options.livelock
        taken = self._lately(frozenset((preemptor.key, candidate.key))) if rule is not None and self.takes else []
        if rule is None or len(taken) < rule.takes or len({by for _, by in taken}) < 2:
            return None
        until = Instant(taken[-rule.takes][0] + rule.within_us + 1)
        text = (
            f"livelock: the two took the place from each other {len(taken)} times within {spell_span(rule.within_us)}; "
            f"it keeps the place until {spell_instant(until)}"
        )
        return Spared(text, until, True)

    def took(self, preemptor: Item, victim: Item) -> None:
        if self.options.livelock is not None:
            pair = frozenset((preemptor.key, victim.key))
            self.takes[pair] = [*self._lately(pair), (self.now, preemptor.key)]

    def gone(self, key: WorkloadKey) -> None:
        """It has ended: whatever it took is forgotten."""
        if self.takes:
            self.takes = {pair: taken for pair, taken in self.takes.items() if key not in pair}
            self._announced = {pair: until for pair, until in self._announced.items() if key not in pair}

    def found(self) -> tuple[Livelock, ...]:
        """Livelocks that were found since this was last asked."""
        found, self._found = tuple(self._found), []
        return found

    def inherit(self, other: Rights) -> None:
        """The memory of another engine, for a copy that plays on."""
        self.takes, self._announced = dict(other.takes), dict(other._announced)

    def _lately(self, pair: _Pair) -> list[tuple[Instant, WorkloadKey]]:
        rule = self.options.livelock
        assert rule is not None
        return [(at, by) for at, by in self.takes.get(pair, ()) if self.now - at <= rule.within_us]

    def _announce(self, preemptor: Item, candidate: Item, spared: Spared) -> None:
        pair = frozenset((preemptor.key, candidate.key))
        rule = self.options.livelock
        assert rule is not None
        if self._announced.get(pair, Instant(0)) > self.now:
            return
        self._announced[pair] = spared.until
        self._found.append(
            Livelock(
                keeper=candidate.key,
                other=preemptor.key,
                takes=len(self._lately(pair)),
                within_us=rule.within_us,
                until=spared.until,
                message=spared.because,
            )
        )
