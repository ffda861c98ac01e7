"""What the gateway decides, and nothing else: pure, so that every case can be played (no clock, no socket, no thread).

Promises: every request that arrives is forwarded, held or refused, never two of these and never forgotten; a held one is
forwarded or refused within its bound; a model with a request in flight is never put to sleep for another; a model that
others wait for takes nothing new once the oldest of them has waited for `patience_s`; no more swaps a minute than said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tenure.domain.model import ModelState

__all__ = ["Action", "Desk", "Forward", "Limits", "Refuse", "Seen", "Sleep", "Ticket", "Wake"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds, in seconds where they are times."""

    held: int = 1024  # requests held at once, of all models together
    hold_s: float = 120.0  # while the model waits for its turn; loading has the model's own startTimeout
    patience_s: float = 10.0  # after this long in line, whoever is up takes nothing new
    quiet_s: float = 1.0  # a model that others wait for leaves after this long without a request
    swaps_per_minute: int = 6
    tries: int = 2  # how often one request is sent, where no byte of an answer has come


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A model as the platform last described it."""

    name: str
    state: ModelState
    port: int | None = None
    run: str | None = None
    reason: str = ""
    message: str = ""
    resident: bool = False
    blocked_by: tuple[str, ...] = ()
    placeable: bool = True
    retry_after_s: float = 0.0  # of `failed`: how long nothing wakes it


@dataclass(slots=True, kw_only=True)
class Ticket:
    """One request.  `patient`: it may be held.  `wakes`: it is inference.  `what` and `who` are for the diary."""

    id: int
    model: str
    at: float
    patient: bool = True
    wakes: bool = True
    what: str = ""
    who: str = ""
    tries: int = 0
    held_at: float | None = None
    excused: bool = False  # it has waited through the end of a server that it was sent to


@dataclass(frozen=True, slots=True)
class Forward:
    ticket: int
    port: int
    run: str | None


@dataclass(frozen=True, slots=True)
class Refuse:
    ticket: int
    status: int
    code: str
    message: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Wake:
    model: str
    cause: str
    by: str


@dataclass(frozen=True, slots=True)
class Sleep:
    model: str
    cause: str


Action = Forward | Refuse | Wake | Sleep
ASK_AGAIN_S = 1.0  # a wake or a sleep that nothing followed is asked for again after this long


@dataclass(slots=True)
class _Line:
    """One model at the desk."""

    seen: Seen
    since: float  # when it came into this state
    waiting: dict[int, Ticket] = field(default_factory=dict)
    flying: dict[int, Ticket] = field(default_factory=dict)
    asked_at: float = -1e9  # when a wake or a sleep was last asked for
    quiet_since: float = -1e9

    @property
    def oldest(self) -> Ticket | None:
        return next(iter(self.waiting.values()), None)


class Desk:
    """Told what happens, answers with what is to be done.  `now` is steady time in seconds."""

    def __init__(self, limits: Limits = Limits()) -> None:
        self.limits = limits
        self._lines: dict[str, _Line] = {}
        self._of: dict[int, str] = {}
        self._swaps: deque[float] = deque()
        self.held = 0

    # ------------------------------------------------------------------ looked at

    def waiting(self, model: str) -> int:
        return len(self._lines[model].waiting) if model in self._lines else 0

    def flying(self, model: str, *, inference: bool = False) -> int:
        tickets = self._lines[model].flying.values() if model in self._lines else ()
        return sum(1 for ticket in tickets if ticket.wakes or not inference)

    def state(self, model: str) -> ModelState | None:
        return self._lines[model].seen.state if model in self._lines else None

    # ------------------------------------------------------------------ told

    def see(self, models: Iterable[Seen], now: float) -> list[Action]:
        """The platform's whole table."""
        table = {seen.name: seen for seen in models}
        actions: list[Action] = []
        for name in [name for name in self._lines if name not in table]:
            line = self._lines[name]
            for ticket in list(line.waiting.values()):
                actions.append(self._refuse(line, ticket, 404, "model_not_found", f"the model {name!r} is no longer declared"))  # fmt: skip
            if not line.flying:
                del self._lines[name]
        for name, seen in table.items():
            if name not in self._lines:
                self._lines[name] = _Line(seen, since=now, quiet_since=now)
                continue
            line = self._lines[name]
            if (seen.state, seen.run) != (line.seen.state, line.seen.run):
                line.since = now
                line.asked_at = -1e9
                if seen.state is ModelState.READY:
                    line.quiet_since = now
                if seen.state is ModelState.FAILED:
                    line.seen = seen
                    actions += self._failed(line)
            line.seen = seen
        return actions + self.tick(now)

    def arrive(self, ticket: Ticket, now: float) -> list[Action]:
        """A request for a model that the table knows."""
        line = self._lines[ticket.model]
        self._of[ticket.id] = ticket.model
        if line.seen.state is ModelState.READY and line.seen.port is not None and not self._yields(line, now):
            return [self._forward(line, ticket)]
        if not ticket.wakes:
            return [self._refuse(line, ticket, 503, "model_asleep", f"{ticket.model} is {line.seen.state}, and only inference wakes it")]  # fmt: skip
        hopeless = self._hopeless(line, ticket, now)
        if hopeless is not None:
            return [hopeless]
        if not ticket.patient:
            text = f"{ticket.model} is {line.seen.state}, and the request does not wait"
            refusal = self._refuse(line, ticket, 503, "model_not_ready", text, 5)
            return [refusal, *self._rouse(line, ticket, now)]
        if self.held >= self.limits.held:
            text = f"{self.held} requests are held already; try again"
            return [self._refuse(line, ticket, 429, "too_many_held", text, 5)]
        self._hold(line, ticket, now)
        return self._settle(line, now)

    def finished(self, id: int, now: float) -> list[Action]:
        """Its answer has ended, or the client has left, wherever it was.  Unknown: nothing."""
        line = self._lines.get(self._of.pop(id, ""))
        if line is None:
            return []
        if line.waiting.pop(id, None) is not None:
            self.held -= 1
        if line.flying.pop(id, None) is not None and not line.flying:
            line.quiet_since = now
        return self.tick(now)

    def again(self, id: int, now: float, *, why: str) -> list[Action]:
        """It was sent and its server left without a byte.  Once more, or 502."""
        line = self._lines[self._of[id]]
        ticket = line.flying.pop(id)
        if not line.flying:
            line.quiet_since = now
        if ticket.tries >= self.limits.tries:
            return [self._refuse(line, ticket, 502, "upstream_failed", f"{ticket.model} ended the connection before it answered, twice: {why}")]  # fmt: skip
        if not ticket.wakes:
            return [self._refuse(line, ticket, 502, "upstream_failed", f"{ticket.model} ended the connection before it answered: {why}")]  # fmt: skip
        ticket.excused = ticket.excused or line.seen.state is ModelState.FAILED
        self._hold(line, ticket, now)
        return self._settle(line, now)

    def tick(self, now: float) -> list[Action]:
        """Look at everything that waits.  Nothing waits: nothing to do."""
        if not self.held:
            return []
        actions: list[Action] = []
        for line in list(self._lines.values()):
            if line.waiting:
                actions += self._settle(line, now)
        return actions

    # ------------------------------------------------------------------ inside

    def _settle(self, line: _Line, now: float) -> list[Action]:
        """What can be done for those who wait for one model."""
        actions: list[Action] = []
        seen = line.seen
        if seen.state is ModelState.READY and seen.port is not None and not self._yields(line, now):
            return [self._forward(line, ticket) for ticket in list(line.waiting.values())]
        for ticket in list(line.waiting.values()):
            hopeless = self._hopeless(line, ticket, now)
            if hopeless is not None:
                actions.append(hopeless)
            elif (
                seen.state is not ModelState.STARTING and now - max(ticket.at, ticket.held_at or 0) > self.limits.hold_s
            ):
                text = f"{ticket.model} is {seen.state} and had no turn within {self.limits.hold_s:g} s"
                actions.append(self._refuse(line, ticket, 503, "model_not_placed", self._because(text, seen), self._swap_in(now) or 10))  # fmt: skip
        oldest = line.oldest
        if oldest is not None:
            actions += self._rouse(line, oldest, now)
            actions += self._make_room(line, oldest, now)
        return actions

    def _rouse(self, line: _Line, ticket: Ticket, now: float) -> list[Action]:
        if line.seen.state not in (ModelState.ASLEEP, ModelState.FAILED) or now - line.asked_at < ASK_AGAIN_S:
            return []
        if line.seen.state is ModelState.FAILED and now < line.since + line.seen.retry_after_s:
            return []
        line.asked_at = now
        return [Wake(line.seen.name, ticket.what, ticket.who)]

    def _make_room(self, line: _Line, oldest: Ticket, now: float) -> list[Action]:
        """Ask the model that is in the way to leave, where it has nothing to do or has had its time."""
        if line.seen.state is not ModelState.QUEUED:
            return []
        blockers = [self._lines[name] for name in line.seen.blocked_by if name in self._lines]
        if any(
            b.seen.state in (ModelState.DRAINING, ModelState.ASLEEP) or now - b.asked_at < ASK_AGAIN_S for b in blockers
        ):
            return []  # one is leaving already
        idle = [b for b in blockers if b.seen.state is ModelState.READY and not b.seen.resident and not b.flying]
        waited = now - oldest.at >= self.limits.patience_s
        free = [b for b in idle if waited or (not b.waiting and now - b.quiet_since >= self.limits.quiet_s)]
        if not free or self._swap_in(now) > 0:
            return []
        chosen = min(free, key=lambda b: b.quiet_since)
        chosen.asked_at = now
        self._swaps.append(now)
        return [Sleep(chosen.seen.name, f"makes room for {line.seen.name}, for which {len(line.waiting)} wait")]

    def _yields(self, line: _Line, now: float) -> bool:
        """Does it take nothing new, because somebody has waited long enough for its place?"""
        if line.seen.resident or (now - line.asked_at < ASK_AGAIN_S and line.seen.state is ModelState.READY):
            return not line.seen.resident
        for other in self._lines.values():
            oldest = other.oldest
            if (
                oldest is not None
                and other.seen.state is ModelState.QUEUED
                and line.seen.name in other.seen.blocked_by
                and now - oldest.at >= self.limits.patience_s
                and self._swap_in(now) <= 0
            ):
                return True
        return False

    def _swap_in(self, now: float) -> float:
        """Seconds until another swap is allowed; 0 = now."""
        while self._swaps and now - self._swaps[0] >= 60:
            self._swaps.popleft()
        return 0.0 if len(self._swaps) < self.limits.swaps_per_minute else 60 - (now - self._swaps[0])

    def _hopeless(self, line: _Line, ticket: Ticket, now: float) -> Refuse | None:
        """Waiting does not help, or not for now."""
        seen = line.seen
        if seen.state is ModelState.QUEUED and not seen.placeable:
            return self._refuse(line, ticket, 503, "model_not_placed", self._because(f"{seen.name} cannot be placed", seen), 60)  # fmt: skip
        left = line.since + seen.retry_after_s - now
        if seen.state is ModelState.FAILED and left > 0 and not ticket.excused:
            return self._refuse(line, ticket, 503, "model_failed", self._because(f"{seen.name} failed", seen), left)
        return None

    def _failed(self, line: _Line) -> list[Action]:
        """Its server has ended.  Who waited for it hears why; who was sent to it and got no byte waits once more."""
        actions: list[Action] = []
        for ticket in list(line.waiting.values()):
            if ticket.tries and not ticket.excused:
                ticket.excused = True
            else:
                text = self._because(f"{line.seen.name} failed", line.seen)
                actions.append(self._refuse(line, ticket, 503, "model_failed", text, max(1.0, line.seen.retry_after_s)))
        return actions

    def _because(self, text: str, seen: Seen) -> str:
        why = ": ".join(part for part in (seen.reason, seen.message) if part)
        return f"{text}: {why}" if why else text

    def _hold(self, line: _Line, ticket: Ticket, now: float) -> None:
        ticket.held_at = now
        line.waiting[ticket.id] = ticket
        self.held += 1

    def _forward(self, line: _Line, ticket: Ticket) -> Forward:
        if line.waiting.pop(ticket.id, None) is not None:
            self.held -= 1
        ticket.tries += 1
        line.flying[ticket.id] = ticket
        assert line.seen.port is not None
        return Forward(ticket.id, line.seen.port, line.seen.run)

    def _refuse(
        self, line: _Line, ticket: Ticket, status: int, code: str, message: str, retry_after_s: float | None = None
    ) -> Refuse:
        if line.waiting.pop(ticket.id, None) is not None:
            self.held -= 1
        self._of.pop(ticket.id, None)
        return Refuse(ticket.id, status, code, message, retry_after_s)


def seen_of(row: Mapping[str, object]) -> Seen:
    """A row of the platform's table."""
    port, run = row.get("port"), row.get("run_id")
    blocked = row.get("blocked_by")
    retry = row.get("retry_after_s")
    return Seen(
        name=str(row["name"]),
        state=ModelState(str(row["state"])),
        port=port if isinstance(port, int) else None,
        run=str(run) if run else None,
        reason=str(row.get("reason") or ""),
        message=str(row.get("message") or ""),
        resident=bool(row.get("resident")),
        blocked_by=tuple(str(name) for name in blocked) if isinstance(blocked, list) else (),
        placeable=bool(row.get("placeable", True)),
        retry_after_s=float(retry) if isinstance(retry, int | float) else 0.0,
    )
