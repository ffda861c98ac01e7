"""Windows: who has claimed a whole card, who is next, and what that keeps from starting.

Of the windows of one card at most one is active.  The others wait in the order in which they were due; one that would
run into an earlier claim's fixed time lets that one go first.  What a window keeps away, and what it leaves in peace, is
`Rule`.  Everything here happens on the loop's thread or under its lock, before the engine decides, so that nothing is
admitted into a window between two looks.  Waiting is steady time: a clock that jumps moves no window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tenure.domain.errors import Conflict, InvalidRequest
from tenure.domain.events import EventKind
from tenure.domain.ids import CardId, Instant, JobId, WorkloadKey
from tenure.domain.lifecycle import HOLDS_QUOTA, JobState
from tenure.domain.plan import Evict
from tenure.domain.reasons import EvictionReason, PendingReason
from tenure.domain.window import WindowEnd, WindowState
from tenure.domain.workload import Card
from tenure.ledger import Ledger, WindowRow

from . import admitting
from .clock import Clock, wire
from .gates import Closed
from .live import Live
from .window_rule import DEFAULT_US, Rule, fits, limit_us, uses_card

if TYPE_CHECKING:
    from .conductor import Conductor

__all__ = ["Windows"]


class Windows:
    """The windows that have not ended.  `taking` are those next in line, for which their card is being cleared."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger, self._clock = ledger, clock
        self._rows: dict[str, WindowRow] = {}
        self._ends: dict[str, Instant] = {}  # of active ones, steady time
        self._leases: dict[str, Instant] = {}  # until when the owner's word counts, steady time
        self._wanted: dict[JobId, None] = {}  # jobs that need a window of their own
        self._taking: dict[CardId, str] = {}
        self._news = False  # something changed since those who wait were told

    # ------------------------------------------------------------------ asking

    @property
    def rows(self) -> tuple[WindowRow, ...]:
        return tuple(self._rows.values())

    def of_card(self, card: CardId) -> list[WindowRow]:
        """Those of one card: the active one first, then in the order of their turns."""
        rows = (row for row in self._rows.values() if row.card == card)
        return sorted(rows, key=lambda row: (row.state is not WindowState.ACTIVE, _due(row), row.seq))

    def of_job(self, job: JobId) -> WindowRow | None:
        return next((row for row in self._rows.values() if row.job_id == job), None)

    def holds(self, row: WindowRow) -> bool:
        """The card is this window's, or is being cleared for it."""
        return row.state is WindowState.ACTIVE or self._taking.get(row.card) == row.id

    def ends_at(self, row: WindowRow) -> Instant | None:
        return self._ends.get(row.id, row.ends_at)

    def next_due(self) -> Instant | None:
        """When something happens by itself, in steady time."""
        due = [*self._ends.values(), *self._leases.values()]
        due += [r.begin_at for r in self._rows.values() if r.state is WindowState.SCHEDULED and r.begin_at is not None]
        return min(due, default=None)

    def check(self, conductor: Conductor, live: Live) -> Closed | None:
        """Whether windows keep a queued job out altogether; cards that it may not be placed on are left in `avoid`."""
        shut, live.avoid = self.verdict(conductor, live)
        if shut is not None and live.spec.window and self.of_job(live.id) is None and live.id not in self._wanted:
            self._wanted[live.id] = None
            conductor.wake()
        return shut

    def verdict(self, conductor: Conductor, live: Live) -> tuple[Closed | None, frozenset[CardId]]:
        """What keeps a queued job out as things are now, or else the cards that it may not be placed on."""
        if live.spec.window:
            return self._own(conductor, live)
        if not self._rows or not uses_card(live):
            return None, frozenset()
        barred = self.barring(conductor, live)
        cards = [card.id for card in conductor.cards if not card.cordoned]
        if not barred or not all(card in barred for card in cards):
            return None, frozenset(barred)
        first = min(barred.values(), key=lambda row: (self.ends_at(row) or Instant(2**62), row.seq))
        return Closed(reason=PendingReason.WAITING_FOR_WINDOW, message=self.told(first, live)), frozenset()

    def barring(self, conductor: Conductor, live: Live) -> dict[CardId, WindowRow]:
        """The cards on which a job may not start now, each with the window that says so."""
        rule, now = Rule(conductor.engine.policy), self._clock.steady()
        found: dict[CardId, WindowRow] = {}
        for row in self._rows.values():
            if rule.untouched(live, row):
                continue
            if self.holds(row):
                found[row.card] = row
            elif row.state is WindowState.SCHEDULED and row.begin_at is not None:
                limit = limit_us(live)
                if limit is None or now + limit > row.begin_at:
                    found.setdefault(row.card, row)
        return found

    def told(self, row: WindowRow, live: Live) -> str:
        """Why this window keeps that job waiting."""
        whose = f"window {row.id} of {row.owner}"
        if row.state is WindowState.ACTIVE:
            return f"card {row.card} is claimed: {whose} lasts until {wire(self.ends_at(row))}"
        if row.state is WindowState.WAITING:
            return f"card {row.card} is being cleared for {whose}, which lasts {_span(row.length_us)} from then on"
        limit = limit_us(live)
        may = f"may run for {_span(limit)}" if limit is not None else "has no --time"
        return f"{whose} begins at {wire(row.begin_at)} on card {row.card}, and this job {may}; one that ends before it may start"

    def _own(self, conductor: Conductor, live: Live) -> tuple[Closed | None, frozenset[CardId]]:
        """A job with a window of its own starts in it, and nowhere else."""
        own = self.of_job(live.id)
        if own is not None and own.state is WindowState.ACTIVE:
            return None, frozenset(card.id for card in conductor.cards if card.id != own.card)
        if own is None:
            message = "no card can be claimed for it now"
        else:
            message = f"its window {own.id} {self.standing(conductor, own)}"
        return Closed(reason=PendingReason.WAITING_FOR_WINDOW, message=message), frozenset()

    def standing(self, conductor: Conductor, row: WindowRow) -> str:
        """Where a window is and what it waits for."""
        if row.state is WindowState.ACTIVE:
            return f"holds card {row.card} until {wire(self.ends_at(row))}"
        if row.state is WindowState.SCHEDULED:
            return f"begins at {wire(row.begin_at)} on card {row.card}"
        if self._taking.get(row.card) == row.id:
            there = self._occupants(conductor, row)
            named = ", ".join(f"job {live.id} ({live.spec.name})" for live in there[:3])
            return f"waits until {named or 'nothing'} has left card {row.card}"
        ahead = [other for other in self.of_card(row.card) if other.id != row.id and self._is_ahead(other, row)]
        named = ", ".join(f"window {other.id} of {other.owner}" for other in ahead)
        return f"waits its turn for card {row.card} after {named}" if named else f"waits its turn for card {row.card}"

    def _is_ahead(self, other: WindowRow, row: WindowRow) -> bool:
        if self.holds(other):
            return True
        return (_due(other), other.seq) < (_due(row), row.seq) or self._collides(row, other)

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
        now = self._clock.steady()
        if begin_at is not None and begin_at <= now:
            begin_at = None
        card = card or self._choose(conductor, owner, [c for c in conductor.cards if not c.cordoned])
        if card is None:
            raise InvalidRequest("there is no card to claim; `tenure cards` lists those in the pool", field="card")
        if begin_at is None and not wait:
            self._refuse_if_taken(conductor, owner, card, length_us)
        return self._write_claim(
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
            if row.state is not WindowState.SCHEDULED or (row.begin_at or 0) < end:
                message = f"card {card} is not free: window {row.id} of {row.owner} {self.standing(conductor, row)}"
                raise Conflict(f"{message}; --wait takes a place in line", code="WindowTaken")
        rule = Rule(conductor.engine.policy)
        for live in _on_card(conductor, card):
            if rule.spared(live) and live.spec.owner != owner:
                message = f"card {card} is not free: job {live.id} of {live.spec.owner} ({live.spec.name}) is not asked to leave for a window"
                raise Conflict(f"{message}; --wait waits for its end", code="WindowTaken")

    def _write_claim(
        self,
        *,
        owner: str,
        length_us: int,
        card: CardId,
        begin_at: Instant | None = None,
        including_resident: bool = False,
        lease_us: int | None = None,
        job_id: JobId | None = None,
    ) -> WindowRow:
        when = f" from {wire(begin_at)}" if begin_at is not None else ""
        what = f" for job {job_id}" if job_id is not None else ""
        with self._ledger.transaction(durable=True) as tx:
            row = tx.claim_window(
                card=card,
                owner=owner,
                state=WindowState.WAITING if begin_at is None else WindowState.SCHEDULED,
                length_us=length_us,
                at=self._clock.now(),
                message=f"{owner} claims card {card}{when} for {_span(length_us)}{what}",
                job_id=job_id,
                including_resident=including_resident,
                lease_us=lease_us,
                begin_at=begin_at,
            )
        self._keep(row)
        return row

    def _choose(self, conductor: Conductor, owner: str, cards: Sequence[Card]) -> CardId | None:
        """The card that can be had soonest: the shortest line, then the fewest jobs in the way."""
        rule = Rule(conductor.engine.policy)

        def cost(card: Card) -> tuple[int, int, int, int]:
            there = [live for live in _on_card(conductor, card.id) if live.spec.owner != owner]
            return (len(self.of_card(card.id)), sum(rule.spared(live) for live in there), len(there), card.index)

        return min(cards, key=cost).id if cards else None

    def renew(self, row: WindowRow) -> None:
        """Its owner is still there."""
        if row.lease_us is not None and row.id in self._rows:
            self._leases[row.id] = Instant(self._clock.steady() + row.lease_us)

    def keep(self, row: WindowRow) -> WindowRow:
        """From now on it lasts without its owner's word."""
        with self._ledger.transaction(durable=True) as tx:
            row = tx.change_window(
                row,
                EventKind.WINDOW_CHANGED,
                self._clock.now(),
                message="lasts to its end, whoever is there",
                fields={"lease_us": None},
            )
        self._keep(row)
        return row

    def release(self, row: WindowRow, *, by: str) -> WindowRow:
        return self._end(row, WindowEnd.RELEASED, f"released by {by}")

    # ------------------------------------------------------------------ the loop

    def load(self) -> None:
        """What the ledger says.  What this process knows of steady time it keeps; the rest follows from the rows."""
        now = self._clock.steady()
        self._rows.clear()
        self._taking.clear()
        self._wanted.clear()
        self._news = True
        for row in self._ledger.live_windows():
            self._rows[row.id] = row
            if row.ends_at is not None:  # a clock that was set back meanwhile makes no window longer
                self._ends.setdefault(row.id, Instant(min(row.ends_at, now + row.length_us)))
            if row.lease_us is not None:
                self._leases.setdefault(row.id, Instant(now + row.lease_us))
        self._ends = {id: at for id, at in self._ends.items() if id in self._rows}
        self._leases = {id: at for id, at in self._leases.items() if id in self._rows}

    def look(self, conductor: Conductor) -> None:
        """End what is over, open what is due, clear its card, and tell those who wait."""
        if not self._rows and not self._wanted and not self._news:
            return
        taking = dict(self._taking)
        self._claim_wanted(conductor)
        for row in self.rows:
            ended = self._over(conductor, row)
            if ended is not None:
                self._end(row, *ended)
        for card in sorted({row.card for row in self._rows.values()}):
            self._turn(conductor, card)
        if self._news or taking != self._taking or self._is_announced():
            self._news = False
            for live in sorted(conductor.live.values(), key=lambda live: (live.submitted_at, live.array_index or 0)):
                if live.state is JobState.QUEUED and (live.spec.window or uses_card(live)):
                    conductor.consider(live)

    def _is_announced(self) -> bool:
        """A window that has yet to come shuts out one job after another as its time draws near."""
        return any(row.state is WindowState.SCHEDULED for row in self._rows.values())

    def _claim_wanted(self, conductor: Conductor) -> None:
        wanted, self._wanted = list(self._wanted), {}
        for job in wanted:
            live = conductor.live.get(job)
            if live is None or live.state is not JobState.QUEUED or live.held or self.of_job(job) is not None:
                continue
            fit = [card for card in conductor.cards if not card.cordoned and fits(live.spec, card)]
            card = self._choose(conductor, live.spec.owner, fit)
            if card is not None:
                length = int(live.spec.time_limit_s * 1e6) if live.spec.time_limit_s else DEFAULT_US
                self._write_claim(owner=live.spec.owner, length_us=length, card=card, job_id=job)

    def _over(self, conductor: Conductor, row: WindowRow) -> tuple[WindowEnd, str] | None:
        now = self._clock.steady()
        if row.state is WindowState.ACTIVE and now >= (self.ends_at(row) or now):
            return WindowEnd.LAPSED, f"its time is over: it lasted {_span(row.length_us)}"
        if row.job_id is not None:
            live = conductor.live.get(row.job_id)
            if live is None:
                return WindowEnd.JOB_ENDED, f"job {row.job_id}, for which it was claimed, has ended"
            if live.state is JobState.QUEUED and live.held:
                return WindowEnd.JOB_ENDED, f"job {row.job_id}, for which it was claimed, is held"
        if now >= self._leases.get(row.id, Instant(now + 1)):
            return WindowEnd.OWNER_GONE, f"{row.owner} has not been heard of for {_span(row.lease_us or 0)}"
        if all(card.id != row.card for card in conductor.cards):
            return WindowEnd.CARD_GONE, f"there is no card {row.card} any more"
        return None

    def _turn(self, conductor: Conductor, card: CardId) -> None:
        """Whose card it is now."""
        now = self._clock.steady()
        for row in self.of_card(card):
            if row.state is WindowState.SCHEDULED and (row.begin_at or now) <= now:
                due = {"state": WindowState.WAITING}
                self._change(row, EventKind.WINDOW_DUE, f"its time has come on card {card}", due)
        line = self.of_card(card)
        head = next((row for row in line if row.state is WindowState.ACTIVE), None)
        if head is None:
            head = next((row for row in line if row.state is WindowState.WAITING and not self._must_yield(row)), None)
        self._taking.pop(card, None)
        if head is None:
            return
        if head.state is WindowState.WAITING:
            self._taking[card] = head.id
        there = self._occupants(conductor, head)
        rule = Rule(conductor.engine.policy)
        if not any(rule.spared(live) for live in there):
            for live in there:
                self._clear(conductor, live, head)
        if head.state is WindowState.WAITING and not there:
            self._taking.pop(card)
            fields: dict[str, object] = {
                "state": WindowState.ACTIVE,
                "opened_at": now,
                "ends_at": now + head.length_us,
            }
            message = f"holds card {card} until {wire(now + head.length_us)}"
            self._change(head, EventKind.WINDOW_OPENED, message, fields)

    def _must_yield(self, row: WindowRow) -> bool:
        """It would last into a window that was fixed for a time before it was claimed."""
        return any(self._collides(row, other) for other in self.of_card(row.card))

    def _collides(self, row: WindowRow, other: WindowRow) -> bool:
        end = self._clock.steady() + row.length_us
        fixed = other.state is WindowState.SCHEDULED and other.begin_at is not None
        return fixed and other.seq < row.seq and (other.begin_at or 0) < end

    def _occupants(self, conductor: Conductor, row: WindowRow) -> list[Live]:
        rule = Rule(conductor.engine.policy)
        return [live for live in _on_card(conductor, row.card) if not rule.untouched(live, row)]

    def _clear(self, conductor: Conductor, live: Live, row: WindowRow) -> None:
        if live.state not in (JobState.ADMITTED, JobState.RUNNING):
            return  # it is leaving already
        message = f"window {row.id} of {row.owner} claims card {row.card} for {_span(row.length_us)}"
        evict = Evict(key=WorkloadKey(live.id), reason=EvictionReason.WINDOW_CLAIMED, message=message)
        admitting.evict(conductor, evict)

    # ------------------------------------------------------------------ writing

    def _end(self, row: WindowRow, why: WindowEnd, message: str) -> WindowRow:
        fields = {"state": WindowState.ENDED, "reason": str(why), "ended_at": self._clock.now()}
        return self._change(row, EventKind.WINDOW_ENDED, message, fields)

    def _change(self, row: WindowRow, kind: EventKind, message: str, fields: Mapping[str, object]) -> WindowRow:
        with self._ledger.transaction(durable=True) as tx:
            row = tx.change_window(row, kind, self._clock.now(), message=message, fields=fields)
        self._keep(row)
        return row

    def _keep(self, row: WindowRow) -> None:
        now = self._clock.steady()
        self._news = True
        if row.state is WindowState.ENDED:
            self._rows.pop(row.id, None)
            self._ends.pop(row.id, None)
            self._leases.pop(row.id, None)
            if self._taking.get(row.card) == row.id:
                self._taking.pop(row.card)
            return
        known = self._rows.get(row.id)
        self._rows[row.id] = row
        if row.ends_at is not None:
            self._ends.setdefault(row.id, row.ends_at)
        if row.lease_us is None:
            self._leases.pop(row.id, None)
        elif known is None:
            self._leases[row.id] = Instant(now + row.lease_us)


def _due(row: WindowRow) -> Instant:
    return row.begin_at if row.begin_at is not None else row.claimed_at


def _on_card(conductor: Conductor, card: CardId) -> Iterator[Live]:
    for live in conductor.live.values():
        if live.state in HOLDS_QUOTA and live.admission is not None and _is_on(live, card):
            yield live


def _is_on(live: Live, card: CardId) -> bool:
    assert live.admission is not None
    return any(place.card == card for place in live.admission.placements)


def _span(us: int) -> str:
    """`90s`, `45m`, `2h`, `2h30m`: short, and exact to the second."""
    seconds = us // 1_000_000
    parts = ((seconds // 3600, "h"), (seconds % 3600 // 60, "m"), (seconds % 60, "s"))
    return "".join(f"{n}{unit}" for n, unit in parts if n) or "0s"
