"""A window that is claimed for a job: which card would do, and what else keeps the job from starting in it.

Such a window takes its card only when nothing but those who would have to leave it is in the job's way, and gives back
what its job does not use: a card that is cleared for nobody keeps everybody waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tenure.domain.explanation import Blocker, Holder
from tenure.domain.ids import CardId, Instant, JobId, WorkloadKey
from tenure.domain.lifecycle import HOLDS_QUOTA, JobState
from tenure.domain.reasons import EvictionReason, PendingReason
from tenure.domain.window import WindowState
from tenure.domain.workload import Card, Workload
from tenure.ledger import WindowRow

from .live import Live
from .window_rule import Rule, fits

if TYPE_CHECKING:
    from .conductor import Conductor

__all__ = ["Idle", "Obstacle", "Obstacles", "on_card"]

PATIENCE_US = 10_000_000  # for which an open window waits for its job to start
_NONE: frozenset[CardId] = frozenset()
REST_US = 60_000_000  # after one that was not used, before the next is opened


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a job could not start in its window, were the card clear.  `stays`: residents leave it no room there."""

    reason: PendingReason | EvictionReason
    message: str
    blockers: tuple[Blocker, ...] = ()
    stays: tuple[Live, ...] = ()


class Obstacles:
    """What stands in the way of each, as things are now.  Alike are asked about once: the tasks of an array share a spec.

    Good for one look, under the loop's lock.
    """

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._known: dict[tuple[int, int, CardId], Obstacle | None] = {}
        self._there: dict[CardId, list[Live]] | None = None
        self._residents: list[Workload] | None = None

    def of(self, live: Live, card: Card) -> Obstacle | None:
        """None: it would start, if those left the card whom its window asks to leave or waits for."""
        now = self._conductor.clock.steady()
        shut = self._conductor.gates.check(live, now=now)
        if shut is not None:
            return Obstacle(reason=shut.reason, message=shut.message)
        key = (id(live.spec), live.priority, card.id)
        if key not in self._known:
            self._known[key] = self._find(live, card)
        return self._known[key]

    def best(self, live: Live) -> list[Card]:
        """The cards to claim one of: on which it would start, or else on which it could."""
        cards = [card for card in self._conductor.cards if not card.cordoned and fits(live.spec, card)]
        free = [card for card in cards if self.of(live, card) is None]
        return free or [card for card in cards if not self._no_room(live, card)] or cards

    def better(self, live: Live, than: CardId) -> Card | None:
        """Another card, on which it would start."""
        cards = (card for card in self._conductor.cards if card.id != than and not card.cordoned)
        return next((card for card in cards if fits(live.spec, card) and self.of(live, card) is None), None)

    def _find(self, live: Live, card: Card) -> Obstacle | None:
        conductor = self._conductor
        stays = self._no_room(live, card)
        if stays:
            named = ", ".join(f"job {one.id} ({one.spec.name})" for one in stays[:3])
            message = f"no room on card {card.id} beside {named}, which a window does not ask to leave"
            held = tuple(_holder(one, card.id) for one in stays)
            blocker = Blocker(kind="placement", message=message, held_by=held)
            reason = PendingReason.TOPOLOGY_PLACEMENT_FAILED
            return Obstacle(reason=reason, message=message, blockers=(blocker,), stays=tuple(stays))
        rule, others = Rule(conductor.engine.policy), frozenset(one.id for one in conductor.cards) - {card.id}
        there = [one for one in self._on(card.id) if one is not live]
        gone = [one for one in there if live.spec.including_resident or not rule.resident(one)]
        ends = [one for one in gone if rule.spared(one) or one.state is JobState.CANCELLING]
        found = conductor.engine.obstacle(
            replace(live.workload(conductor.cards), avoid=others),
            card=card.id,
            without=[WorkloadKey(one.id) for one in ends],
            returning=[WorkloadKey(one.id) for one in gone if one not in ends],
            entering=() if live.spec.including_resident else self._residents_in_line(rule),
            now=conductor.clock.steady(),
        )
        if found is None:
            return None
        return Obstacle(reason=found.reason, message=found.message, blockers=found.blockers)

    def _no_room(self, live: Live, card: Card) -> list[Live]:
        """The residents that keep it off a card: those that its window leaves there, and that it cannot preempt."""
        if live.spec.including_resident:
            return []
        rule = Rule(self._conductor.engine.policy)
        there = self._on(card.id)
        stays = [one for one in there if one is not live and rule.resident(one) and one.priority >= live.priority]
        return [] if _has_room(card, live, stays) else stays

    def _residents_in_line(self, rule: Rule) -> list[Workload]:
        """Whom its window does not keep out, and who may come before the job: those that another one has sent away, say."""
        if self._residents is None:
            queued = (one for one in self._conductor.live.values() if one.state is JobState.QUEUED)
            free = (one for one in queued if one.in_engine or one.reason == PendingReason.WAITING_FOR_WINDOW)
            residents = (one for one in free if rule.resident(one) and not one.spec.window)
            self._residents = [one.workload(self._conductor.cards) for one in residents]
        return self._residents

    def _on(self, card: CardId) -> list[Live]:
        """Who is on each card is found once: thousands may wait in line."""
        if self._there is None:
            self._there = {one.id: [] for one in self._conductor.cards}
            for live in self._conductor.live.values():
                for one in _cards_of(live) & self._there.keys():
                    self._there[one].append(live)
        return self._there[card]


class Idle:
    """Open windows whose jobs have yet to start, and jobs that let one go to waste.  Times are steady."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[int, Instant]] = {}  # after which attempt, and since when
        self._in_line: set[str] = set()  # of those whose jobs were in line at the last look
        self._rest: dict[JobId, Instant] = {}

    def is_over(self, conductor: Conductor, row: WindowRow, live: Live) -> bool:
        """Whether an open window has waited for its job for as long as one may.  Asked at every look."""
        if row.state is not WindowState.ACTIVE or live.state is not JobState.QUEUED or _is_on_its_way(conductor, live):
            self.forget(row)
            return False
        now, was_in_line = conductor.clock.steady(), row.id in self._in_line
        self._in_line.discard(row.id)
        if live.in_engine:
            self._in_line.add(row.id)
        after, since = self._since.setdefault(row.id, (live.attempts, now))
        if after != live.attempts:  # it started, and is queued again: that was over between two looks
            self._since[row.id], since = (live.attempts, now), now
        if now < since + PATIENCE_US:
            return False
        if live.in_engine and not was_in_line:
            conductor.wake()  # it came into line this moment, and may start
            return False
        if live.in_engine:  # it was to start by all that was known when the window was opened
            self.rest(live.id, now)
        return True

    def rest(self, job: JobId, now: Instant) -> None:
        """Others were asked to leave for it, and it did not start: not again at once."""
        self._rest[job] = Instant(now + REST_US)

    def forget(self, row: WindowRow) -> None:
        self._since.pop(row.id, None)
        self._in_line.discard(row.id)

    def rests(self, job: JobId) -> Instant | None:
        """Until when no window is opened for it."""
        return self._rest.get(job)

    def next_due(self) -> list[Instant]:
        return [*(Instant(since + PATIENCE_US) for _, since in self._since.values()), *self._rest.values()]

    def look(self, now: Instant) -> None:
        self._rest = {job: until for job, until in self._rest.items() if until > now}

    def clear(self) -> None:
        """What was seen of windows; what jobs did is remembered."""
        self._since.clear()
        self._in_line.clear()


def on_card(conductor: Conductor, card: CardId) -> Iterator[Live]:
    """Whoever has a place there, also on the way out."""
    return (live for live in conductor.live.values() if card in _cards_of(live))


def _cards_of(live: Live) -> frozenset[CardId]:
    if live.admission is None or live.state not in HOLDS_QUOTA:
        return _NONE
    return frozenset(place.card for place in live.admission.placements)


def _is_on_its_way(conductor: Conductor, live: Live) -> bool:
    """In line, and nothing but victims of its own are left to wait for."""
    pend = conductor.engine.status(WorkloadKey(live.id)) if live.in_engine else None
    return pend is not None and pend.reason is PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS


def _has_room(card: Card, job: Live, stays: Sequence[Live]) -> bool:
    """All processes of a job fit on a card beside those who stay there."""
    places = [p for live in stays if live.admission for p in live.admission.placements if p.card == card.id]
    if job.spec.whole and places:
        return False
    shares = card.shares - sum(place.shares for place in places)
    return fits(job.spec, replace(card, shares=shares, memory=card.memory - sum(place.memory for place in places)))


def _holder(live: Live, card: CardId) -> Holder:
    places = live.admission.placements if live.admission is not None else ()
    shares = sum(place.shares for place in places if place.card == card)
    because = f"it is resident, and its priority {live.priority} is not below"
    return Holder(key=WorkloadKey(live.id), amount=shares, preemptible=False, because=because)
