"""The book of windows: those that have not ended, as the ledger has them, and their times on a clock that never jumps.

Every change is one durable transaction beside its line in the diary.  Rows hold stamps, which people compare with their
own clocks; what is waited for is steady time, so that a clock that jumps moves no window and no place in line.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenure.domain.events import EventKind
from tenure.domain.ids import CardId, Instant, JobId
from tenure.domain.window import WindowEnd, WindowState
from tenure.ledger import Ledger, WindowRow

from .clock import Clock, span, wire

__all__ = ["WindowBook"]


class WindowBook:
    """What is claimed.  It decides nothing; whose turn it is, `Windows` says."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger, self._clock = ledger, clock
        self._rows: dict[str, WindowRow] = {}
        self._due: dict[str, Instant] = {}  # when the time of scheduled ones comes, steady
        self._ends: dict[str, Instant] = {}  # of active ones, steady
        self._leases: dict[str, Instant] = {}  # until when the owner's word counts, steady
        self._unheard: set[str] = set()  # whose owners have said nothing since an earlier process ended
        self._said: dict[str, Instant] = {}  # the ends of active ones as people are told them: stamps
        self._changes = 0

    # ------------------------------------------------------------------ asking

    @property
    def rows(self) -> tuple[WindowRow, ...]:
        return tuple(self._rows.values())

    @property
    def announced(self) -> list[WindowRow]:
        """Those whose time has yet to come."""
        return [self._rows[id] for id in self._due]

    @property
    def changes(self) -> int:
        """How often anything here has changed: a larger number than last time means news."""
        return self._changes

    def of_card(self, card: CardId) -> list[WindowRow]:
        """Those of one card: the active one first, then in the order of their turns."""
        return sorted((row for row in self._rows.values() if row.card == card), key=self.turn)

    def of_job(self, job: JobId) -> WindowRow | None:
        return next((row for row in self._rows.values() if row.job_id == job), None)

    def turn(self, row: WindowRow) -> tuple[int, Instant, int]:
        """Its place among others.  Whoever claimed first goes first, once its time has come: so one that was fixed for a
        time goes before all that were claimed later and could not be over by then."""
        if row.state is WindowState.SCHEDULED:
            return 2, self._due[row.id], row.seq
        return int(row.state is not WindowState.ACTIVE), Instant(0), row.seq

    def begins(self, row: WindowRow) -> Instant | None:
        """When the time of a scheduled one comes, in steady time; None where it has come."""
        return self._due.get(row.id) if row.state is WindowState.SCHEDULED else None

    def ends_at(self, row: WindowRow) -> Instant | None:
        """The end of an active one, as people are told it; None for the others."""
        return self._said.get(row.id, row.ends_at)

    def over_by(self, row: WindowRow) -> Instant:
        """Its end in steady time: of one that is not active yet, the earliest that it can be."""
        begin = max(self._clock.steady(), self.begins(row) or Instant(0))
        return self._ends.get(row.id, Instant(begin + row.length_us))

    def is_heard(self, row: WindowRow) -> bool:
        """Whether its owner, where one is to say that they are there, has said so to this process."""
        return row.id not in self._unheard

    def next_due(self) -> Instant | None:
        """When something happens by itself, in steady time."""
        begins = (at for row in self._rows.values() if (at := self.begins(row)) is not None)
        return min([*begins, *self._ends.values(), *self._leases.values()], default=None)

    # ------------------------------------------------------------------ writing

    def load(self) -> None:
        """What the ledger says.  What this process knows of steady time it keeps; the rest follows from the rows."""
        now = self._clock.steady()
        self._changes += 1
        self._rows = {row.id: row for row in self._ledger.live_windows()}
        for times in (self._due, self._ends, self._leases, self._said):
            for id in [id for id in times if id not in self._rows]:
                del times[id]
        for row in self._rows.values():
            if row.state is WindowState.SCHEDULED:
                self._due.setdefault(row.id, row.begin_at or row.claimed_at)
            if row.ends_at is not None:  # a clock that was set back meanwhile makes no window longer
                end = self._ends.setdefault(row.id, Instant(min(row.ends_at, now + row.length_us)))
                self._said.setdefault(row.id, end)
            if row.lease_us is not None and row.id not in self._leases:
                self._leases[row.id] = Instant(now + row.lease_us)
                self._unheard.add(row.id)

    def write_claim(
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
        """A new row at the end of its card's line; `begin_at` is a stamp."""
        now, steady = self._clock.now(), self._clock.steady()
        when = f" from {wire(begin_at)}" if begin_at is not None else ""
        what = f" for job {job_id}" if job_id is not None else ""
        with self._ledger.transaction(durable=True) as tx:
            row = tx.claim_window(
                card=card,
                owner=owner,
                state=WindowState.WAITING if begin_at is None else WindowState.SCHEDULED,
                length_us=length_us,
                at=now,
                message=f"{owner} claims card {card}{when} for {span(length_us)}{what}",
                job_id=job_id,
                including_resident=including_resident,
                lease_us=lease_us,
                begin_at=begin_at,
            )
        if begin_at is not None:
            self._due[row.id] = Instant(steady + begin_at - now)
        if lease_us is not None:
            self._leases[row.id] = Instant(steady + lease_us)
        return self._keep(row)

    def come(self, row: WindowRow) -> WindowRow:
        """The time of a scheduled one has come."""
        message = f"its time has come on card {row.card}"
        row = self._change(row, EventKind.WINDOW_DUE, message, {"state": WindowState.WAITING})
        self._due.pop(row.id, None)
        return row

    def opened(self, row: WindowRow) -> WindowRow:
        """Its card is clear: it holds it from now on, for its length."""
        now = self._clock.now()
        end = Instant(now + row.length_us)
        fields: dict[str, object] = {"state": WindowState.ACTIVE, "opened_at": now, "ends_at": end}
        row = self._change(row, EventKind.WINDOW_OPENED, f"holds card {row.card} until {wire(end)}", fields)
        self._ends[row.id], self._said[row.id] = Instant(self._clock.steady() + row.length_us), end
        return row

    def renew(self, row: WindowRow) -> bool:
        """Its owner is still there.  True where that was not known."""
        if row.lease_us is None or row.id not in self._rows:
            return False
        self._leases[row.id] = Instant(self._clock.steady() + row.lease_us)
        news = row.id in self._unheard
        self._unheard.discard(row.id)
        return news

    def keep(self, row: WindowRow) -> WindowRow:
        """From now on it lasts without its owner's word."""
        row = self._change(row, EventKind.WINDOW_CHANGED, "lasts to its end, whoever is there", {"lease_us": None})
        self._leases.pop(row.id, None)
        self._unheard.discard(row.id)
        return row

    def end(self, row: WindowRow, why: WindowEnd, message: str) -> WindowRow:
        """It is over; the diary says for how many seconds it held its card."""
        held = max(0, self._clock.steady() - self._ends[row.id] + row.length_us) if row.id in self._ends else 0
        fields = {"state": WindowState.ENDED, "reason": str(why), "ended_at": self._clock.now()}
        row = self._change(row, EventKind.WINDOW_ENDED, message, fields, {"held_s": held / 1e6})
        for times in (self._due, self._ends, self._leases, self._said):
            times.pop(row.id, None)
        self._unheard.discard(row.id)
        return row

    def _change(
        self,
        row: WindowRow,
        kind: EventKind,
        message: str,
        fields: Mapping[str, object],
        data: Mapping[str, object] | None = None,
    ) -> WindowRow:
        with self._ledger.transaction(durable=True) as tx:
            row = tx.change_window(row, kind, self._clock.now(), message=message, fields=fields, data=data)
        return self._keep(row)

    def _keep(self, row: WindowRow) -> WindowRow:
        self._changes += 1
        if row.state is WindowState.ENDED:
            self._rows.pop(row.id, None)
        else:
            self._rows[row.id] = row
        return row
