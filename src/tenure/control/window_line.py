"""The line for each card: who holds it, who may take it next, and what each of the others waits for.

Of the windows of one card at most one is active.  Of the others those whose time has come wait in the order in which they
were claimed; one that would run into an earlier claim's fixed time lets that one go first, and one whose job could not
start in it lets all.  Asks and answers; it changes nothing.  Under the loop's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.domain.ids import CardId, Instant
from tenure.domain.lifecycle import JobState
from tenure.domain.reasons import PendingReason
from tenure.domain.window import WindowState
from tenure.ledger import Ledger, WindowRow

from .clock import Clock, span, wire
from .live import Live
from .window_book import WindowBook
from .window_jobs import Idle, Obstacle, Obstacles, on_card
from .window_rule import Rule

if TYPE_CHECKING:
    from .conductor import Conductor

__all__ = ["WindowLine"]


class WindowLine(WindowBook):
    """The book with its turns.  `taking` are those next in line, for which their card is being cleared."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        super().__init__(ledger, clock)
        self._taking: dict[CardId, str] = {}
        self._kept: dict[str, Obstacle] = {}  # what keeps the job of a waiting window from starting in it, as last seen
        self._idle = Idle()

    # ------------------------------------------------------------------ who has it

    def holds(self, row: WindowRow) -> bool:
        """The card is this window's, or is being cleared for it."""
        return row.state is WindowState.ACTIVE or self._taking.get(row.card) == row.id

    def claimed(self, row: WindowRow) -> str:
        """What the card of one that holds it is told for, to those whom it keeps away."""
        whose = f"window {row.id} of {row.owner}"
        if row.state is WindowState.ACTIVE:
            return f"card {row.card} is claimed: {whose} lasts until {wire(self.ends_at(row))}"
        return f"card {row.card} is being cleared for {whose}, which lasts {span(row.length_us)} from then on"

    def obstacle(self, row: WindowRow) -> Obstacle | None:
        """What keeps the job of a waiting window from starting in it, as last seen."""
        return self._kept.get(row.id)

    def standing(self, conductor: Conductor, row: WindowRow, *, brief: bool = False) -> str:
        """Where a window is and what it waits for; `brief`: in words that stay as long as the reason does."""
        if row.state is WindowState.ACTIVE:
            return f"holds card {row.card} until {wire(self.ends_at(row))}"
        if row.state is WindowState.SCHEDULED:
            return f"begins at {wire(row.begin_at)} on card {row.card}"
        if self.is_out(conductor, row.card):
            return f"waits until card {row.card} is in the pool again"
        if (kept := self._kept.get(row.id)) is not None:
            why = kept.reason if brief and not kept.stays else kept.message
            return f"does not take card {row.card} before job {row.job_id} could start in it: {why}"
        if self._taking.get(row.card) == row.id and not self.is_heard(row):
            return f"waits for a sign of {row.owner} before it takes card {row.card}"
        if self._taking.get(row.card) == row.id:
            there = self.occupants(conductor, row)
            named = ", ".join(f"job {live.id} ({live.spec.name})" for live in there[:3])
            return f"waits until {named} has left card {row.card}" if named else f"is about to hold card {row.card}"
        ahead = [other for other in self.of_card(row.card) if other.id != row.id and self._is_ahead(other, row)]
        named = ", ".join(f"window {other.id} of {other.owner}" for other in ahead)
        return f"waits its turn for card {row.card} after {named}" if named else f"waits its turn for card {row.card}"

    def _is_ahead(self, other: WindowRow, row: WindowRow) -> bool:
        if self.holds(other):
            return True
        return self.turn(other) < self.turn(row) or self._collides(row, other)

    # ------------------------------------------------------------------ whose turn it is

    def may_take(self, conductor: Conductor, row: WindowRow, obstacles: Obstacles | None = None) -> bool:
        """A waiting window may have its card, as far as the pool, other windows and its own job go."""
        if self._must_yield(row) or self.is_out(conductor, row.card):
            return False
        return self._keeps(conductor, row, obstacles or Obstacles(conductor)) is None

    def _keeps(self, conductor: Conductor, row: WindowRow, obstacles: Obstacles) -> Obstacle | None:
        live = conductor.live.get(row.job_id) if row.job_id is not None else None
        card = next((card for card in conductor.cards if card.id == row.card), None)
        if live is None or card is None or live.state is not JobState.QUEUED:
            return None
        if (until := self._idle.rests(live.id)) is not None:
            message = f"it did not start when it was to, and is not tried again before {self._stamp(until)}"
            return Obstacle(reason=PendingReason.PENDING, message=message)
        return obstacles.of(live, card)

    def _stamp(self, at: Instant) -> str | None:
        """A steady time as people are told it."""
        return wire(at - self._clock.steady() + self._clock.now())

    def is_out(self, conductor: Conductor, id: CardId) -> bool:
        return any(card.id == id and card.cordoned for card in conductor.cards)

    def _must_yield(self, row: WindowRow) -> bool:
        """It would last into a window that was fixed for a time before it was claimed."""
        return any(self._collides(row, other) for other in self.announced if other.card == row.card)

    def _collides(self, row: WindowRow, other: WindowRow) -> bool:
        begins, end = self.begins(other), self._clock.steady() + row.length_us
        return begins is not None and other.seq < row.seq and begins < end

    def occupants(self, conductor: Conductor, row: WindowRow) -> list[Live]:
        rule = Rule(conductor.engine.policy)
        return [live for live in on_card(conductor, row.card) if not rule.untouched(live, row)]
