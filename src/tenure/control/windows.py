"""Windows: claims as they are made, and at every look whose card it is, who has to leave it and what is over.

What a window keeps away, and what it leaves in peace, is `Rule`; whose turn it is, the line says; what may not start is
the gate's to say.  Everything here happens on the loop's thread or under its lock, before the engine decides, so that
nothing is admitted into a window between two looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenure.domain.errors import Conflict, InvalidRequest
from tenure.domain.ids import CardId, Instant, JobId, WorkloadKey
from tenure.domain.lifecycle import JobState
from tenure.domain.plan import Evict
from tenure.domain.reasons import EvictionReason
from tenure.domain.window import WindowEnd, WindowState
from tenure.domain.workload import Card
from tenure.ledger import Ledger, WindowRow

from . import admitting
from .clock import Clock, span, wire
from .live import Live
from .window_jobs import Obstacles, on_card
from .window_line import WindowLine
from .window_rule import DEFAULT_US, Rule, uses_card

if TYPE_CHECKING:
    from .conductor import Conductor

__all__ = ["Windows"]


class Windows(WindowLine):
    """The line at work."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        super().__init__(ledger, clock)
        self._wanted: dict[JobId, None] = {}  # jobs that need a window of their own
        # When a window draws too near for the first of those that may start now, steady.
        self._shuts: Instant | None = None
        self._told = 0  # `changes` when those who wait were last told

    # ------------------------------------------------------------------ claiming

    def claim(
        self,
        conductor: Conductor,
        *,
        owner: str,
        length_us: int,
        card: CardId | None = None,
        begin_at: Instant | None = None,
        including_resident: bool = False,
        lease_us: int | None = None,
        wait: bool = False,
    ) -> WindowRow:
        """Write a claim.  Without `wait` or a time to begin at, Conflict says who is in the way.  Under the lock."""
        if begin_at is not None and begin_at <= self._clock.now():
            begin_at = None
        card = card or self._choose(conductor, owner, [c for c in conductor.cards if not c.cordoned])
        if card is None:
            raise InvalidRequest("there is no card to claim; `tenure cards` lists those in the pool", field="card")
        if begin_at is None and not wait:
            self._refuse_if_taken(conductor, owner, card, length_us)
        return self.write_claim(
            owner=owner,
            length_us=length_us,
            card=card,
            begin_at=begin_at,
            including_resident=including_resident,
            lease_us=lease_us,
        )

    def _refuse_if_taken(self, conductor: Conductor, owner: str, card: CardId, length_us: int) -> None:
        end = self._clock.steady() + length_us
        for row in self.of_card(card):
            if (self.begins(row) or 0) < end:
                message = f"card {card} is not free: window {row.id} of {row.owner} {self.standing(conductor, row)}"
                raise Conflict(f"{message}; --wait takes a place in line", code="WindowTaken")
        rule = Rule(conductor.engine.policy)
        for live in on_card(conductor, card):
            if rule.spared(live) and live.spec.owner != owner:
                message = f"card {card} is not free: job {live.id} of {live.spec.owner} ({live.spec.name}) is not asked to leave for a window"
                raise Conflict(f"{message}; --wait waits for its end", code="WindowTaken")

    def _choose(self, conductor: Conductor, owner: str, cards: Sequence[Card]) -> CardId | None:
        """The card that can be had soonest: the shortest line, then the fewest jobs in the way."""
        rule = Rule(conductor.engine.policy)

        def cost(card: Card) -> tuple[int, int, int, int]:
            there = [live for live in on_card(conductor, card.id) if live.spec.owner != owner]
            return (len(self.of_card(card.id)), sum(rule.spared(live) for live in there), len(there), card.index)

        return min(cards, key=cost).id if cards else None

    def need(self, live: Live) -> bool:
        """A job cannot start without a window of its own; True where it has to be claimed yet."""
        if self.of_job(live.id) is not None or live.id in self._wanted:
            return False
        self._wanted[live.id] = None
        return True

    def release(self, row: WindowRow, *, by: str) -> WindowRow:
        return self.end(row, WindowEnd.RELEASED, f"released by {by}")

    # ------------------------------------------------------------------ the loop

    def next_due(self) -> Instant | None:
        due = super().next_due()
        return min([*self._idle.next_due(), *([due] if due is not None else [])], default=None)

    def end(self, row: WindowRow, why: WindowEnd, message: str) -> WindowRow:
        self._kept.pop(row.id, None)
        self._idle.forget(row)
        return super().end(row, why, message)

    def load(self) -> None:
        super().load()
        self._taking.clear()
        self._wanted.clear()
        self._kept.clear()
        self._idle.clear()

    def look_after(self, at: Instant) -> None:
        """One who may start now may do so until then: a window that has yet to come shuts out one after another."""
        self._shuts = at if self._shuts is None else min(at, self._shuts)

    def stir(self) -> None:
        """Something else has changed that may let in, or keep out, those who wait: the cards or the policy."""
        if self._rows:
            self._told = -1

    def look(self, conductor: Conductor) -> None:
        """End what is over, open what is due, clear its card, and tell those who wait."""
        self._idle.look(self._clock.steady())
        if not self._rows and not self._wanted and self._told == self.changes:
            return
        taking, obstacles = dict(self._taking), Obstacles(conductor)
        self._claim_wanted(conductor, obstacles)
        for row in self.rows:
            ended = self._over(conductor, row)
            if ended is not None:
                self.end(row, *ended)
        for card in sorted({*self._taking, *(row.card for row in self._rows.values())}):
            self._turn(conductor, card, obstacles)
        drawn_near = self._shuts is not None and self._clock.steady() > self._shuts
        if self._told != self.changes or taking != self._taking or drawn_near:
            if any(self._is_stuck(conductor, row) for row in self.rows):
                conductor.wake()  # to move, once everybody knows what has changed
            self._told, self._shuts = self.changes, None
            for live in sorted(conductor.live.values(), key=lambda live: (live.submitted_at, live.array_index or 0)):
                if live.state is JobState.QUEUED and (live.spec.window or uses_card(live)):
                    conductor.consider(live)
        else:
            self._move(conductor, obstacles)

    def _claim_wanted(self, conductor: Conductor, obstacles: Obstacles) -> None:
        wanted, self._wanted = list(self._wanted), {}
        for job in wanted:
            live = conductor.live.get(job)
            if live is None or live.state is not JobState.QUEUED or live.held or self.of_job(job) is not None:
                continue
            card = self._choose(conductor, live.spec.owner, obstacles.best(live))
            if card is not None:
                self._claim_for(live, card)
            else:
                self._wanted[job] = None  # until one is in the pool again

    def _claim_for(self, live: Live, card: CardId) -> None:
        length = int(live.spec.time_limit_s * 1e6) if live.spec.time_limit_s else DEFAULT_US
        self.write_claim(
            owner=live.spec.owner,
            length_us=length,
            card=card,
            including_resident=live.spec.including_resident,
            job_id=live.id,
        )

    def _over(self, conductor: Conductor, row: WindowRow) -> tuple[WindowEnd, str] | None:
        now = self._clock.steady()
        if row.state is WindowState.ACTIVE and now >= self.over_by(row):
            return WindowEnd.LAPSED, f"its time is over: it lasted {span(row.length_us)}"
        begins = self.begins(row)
        if begins is not None and now >= begins + row.length_us:
            meant = f"its time, {span(row.length_us)} from {wire(row.begin_at)}"
            return WindowEnd.LAPSED, f"{meant}, went by with the platform down"
        if row.job_id is not None:
            live = conductor.live.get(row.job_id)
            if live is None:
                return WindowEnd.JOB_ENDED, f"job {row.job_id}, for which it was claimed, has ended"
            if live.state is JobState.QUEUED and live.held:
                return WindowEnd.JOB_ENDED, f"job {row.job_id}, for which it was claimed, is held"
            if self._idle.is_over(conductor, row, live):
                message = live.message or str(live.reason)
                return WindowEnd.JOB_WAITS, f"job {live.id}, for which it was claimed, did not start: {message}"
        if now >= self._leases.get(row.id, Instant(now + 1)):
            return WindowEnd.OWNER_GONE, f"{row.owner} has not been heard of for {span(row.lease_us or 0)}"
        if all(card.id != row.card for card in conductor.cards):
            return WindowEnd.CARD_GONE, f"there is no card {row.card} any more"
        return None

    def _turn(self, conductor: Conductor, card: CardId, obstacles: Obstacles) -> None:
        """Whose card it is now."""
        now = self._clock.steady()
        for row in self.of_card(card):
            if (self.begins(row) or Instant(now + 1)) <= now:
                self.come(row)
        line = self.of_card(card)
        head = next((row for row in line if row.state is WindowState.ACTIVE), None)
        for row in line:
            self._kept.pop(row.id, None)
            if head is not None or row.state is not WindowState.WAITING:
                continue
            if self.may_take(conductor, row, obstacles):
                head = row
            elif not self.is_out(conductor, card) and (kept := self._keeps(conductor, row, obstacles)) is not None:
                self._kept[row.id] = kept
        before = self._rows.get(self._taking.pop(card, ""))
        if before is not None and before.job_id is not None and before.id in self._kept:
            self._idle.rest(before.job_id, now)
        if head is None:
            return
        if head.state is WindowState.WAITING:
            self._taking[card] = head.id
            if not self.is_heard(head):
                return  # nobody is made to leave for an owner who may be gone
        there = self.occupants(conductor, head)
        rule = Rule(conductor.engine.policy)
        if not any(rule.spared(live) for live in there):
            for live in there:
                self._clear(conductor, live, head)
        if head.state is WindowState.WAITING and not there:
            self._taking.pop(card)
            self.opened(head)

    def _is_stuck(self, conductor: Conductor, row: WindowRow) -> bool:
        """Claimed for a job that cannot use the card, as things are."""
        waits = row.job_id is not None and row.state is WindowState.WAITING
        return waits and (row.id in self._kept or self.is_out(conductor, row.card))

    def _move(self, conductor: Conductor, obstacles: Obstacles) -> None:
        """A job whose window cannot use its card claims one that it can use."""
        for row in self.rows:
            live = conductor.live.get(row.job_id) if row.job_id is not None else None
            if live is None or live.state is not JobState.QUEUED or live.held or not self._is_stuck(conductor, row):
                continue
            other = obstacles.better(live, than=row.card)
            if other is not None and self._idle.rests(live.id) is None:
                self.end(
                    row, WindowEnd.JOB_WAITS, f"job {live.id}, for which it was claimed, could start on card {other.id}"
                )
                self._claim_for(live, other.id)
                conductor.wake()

    def _clear(self, conductor: Conductor, live: Live, row: WindowRow) -> None:
        if live.state not in (JobState.ADMITTED, JobState.RUNNING):
            return  # it is leaving already
        message = f"window {row.id} of {row.owner} claims card {row.card} for {span(row.length_us)}"
        evict = Evict(key=WorkloadKey(live.id), reason=EvictionReason.WINDOW_CLAIMED, message=message)
        admitting.evict(conductor, evict)
