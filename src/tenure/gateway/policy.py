"""What the gateway decides, and nothing else: pure, so that every case can be played (no clock, no socket, no thread).

Promises: every request that arrives is forwarded, held or refused, never two of these and never forgotten; a held one is
forwarded or refused within its bound, and a refusal says when its turn is due; nobody waits for a window that lasts longer
than that; a model with a request in flight is never put to sleep for another; a model that others wait for takes nothing
new once the oldest of them has waited for `patience_s`; no more swaps a minute than said.

Whose turn it is among those that wait is the platform's to say: a model that leaves and is asked for again joins its
queue at the end.  The desk says when a model leaves.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenure.domain.model import ModelState

from .line import Line
from .pacing import Swaps
from .words import Action, Forward, Limits, Refuse, Seen, Sleep, Ticket, Wake

__all__ = ["Desk"]

ASK_AGAIN_S = 1.0  # a wake or a sleep that nothing followed is asked for again after this long
LEAVING_S = 10.0  # a model that was asked to leave takes nothing new for this long, whatever its state still is
AGAIN_S = 0.2  # a server that is being ended takes connections until its socket is closed, and ends them
ABSENT_S = 5.0  # the platform finds out within two that a server which was up no longer listens
LASTS_S = 300.0  # a stream that is older than this is not thought to last for longer than this


class Desk:
    """Told what happens, answers with what is to be done.  `now` is steady time in seconds."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._lines: dict[str, Line] = {}
        self._of: dict[int, str] = {}
        self._swaps = Swaps(self.limits)
        self._claimed: set[str] = set()
        self.held = 0

    # ------------------------------------------------------------------ looked at

    def waiting(self, model: str) -> int:
        return len(self._lines[model].waiting) if model in self._lines else 0

    def flying(self, model: str, *, inference: bool = False) -> int:
        tickets = self._lines[model].flying.values() if model in self._lines else ()
        return sum(1 for ticket in tickets if ticket.wakes or not inference)

    def state(self, model: str) -> ModelState | None:
        return self._lines[model].seen.state if model in self._lines else None

    def run(self, model: str) -> str | None:
        """The run that serves it now."""
        return self._lines[model].seen.run if model in self._lines else None

    @property
    def restless(self) -> bool:
        """Does time alone change anything?  Then `tick` is to be called a few times a second."""
        return bool(self.held or self._claimed)

    # ------------------------------------------------------------------ told

    def see(self, models: Iterable[Seen], now: float) -> list[Action]:
        """The platform's whole table."""
        table = {seen.name: seen for seen in models}
        actions: list[Action] = []
        for name in [name for name in self._lines if name not in table]:
            line = self._lines[name]
            for ticket in list(line.waiting.values()):
                actions.append(self._refuse(line, ticket, 404, "model_not_found", _gone(name)))
            self._unclaim(line)
            if not line.flying:
                del self._lines[name]
        for name, seen in table.items():
            line = self._lines.setdefault(
                name, Line(seen, since=now, quiet_since=now, served=seen.state is ModelState.READY)
            )
            if (seen.state, seen.run) != (line.seen.state, line.seen.run) or line.fails_again(seen):
                line.moved(seen, now)
                if seen.state is ModelState.FAILED:
                    actions += self._failed(line)
            line.seen, line.told = seen, now
        return actions + self.tick(now)

    def arrive(self, ticket: Ticket, now: float) -> list[Action]:
        """A request for a model that the table knows, or knew when the request was read."""
        line = self._lines.get(ticket.model)
        if line is None:
            return [Refuse(ticket.id, 404, "model_not_found", _gone(ticket.model))]
        self._of[ticket.id] = ticket.model
        if self._takes(line, now):
            return [self._forward(line, ticket)]
        if not ticket.wakes:
            return [self._refuse(line, ticket, 503, "model_asleep", f"{ticket.model} is {line.seen.state}, and only inference wakes it; `inferencePaths` of its document says what is")]  # fmt: skip
        hopeless = self._hopeless(line, ticket, now)
        if hopeless is not None:
            return [hopeless]
        if not ticket.patient:
            text = f"{ticket.model} is {line.seen.state}, and the request does not wait"
            text = _because(text, line.seen) if line.seen.state is ModelState.QUEUED else text
            refusal = self._come_again(line, ticket, "model_not_ready", text, now)
            return [refusal, *self._rouse(line, ticket, now), *self._make_room(line, now)]
        if self.held >= self.limits.held:
            text = f"{self.held} requests are held already; try again"
            return [self._refuse(line, ticket, 429, "too_many_held", text, self._turn_in(line, now))]
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

    def again(self, id: int, now: float, *, why: str, absent: bool = False) -> list[Action]:
        """It was sent and its server left without a byte.  Once more, in a moment, or 502.

        `absent`: nobody listened, so that it was not sent.  It waits until the platform knows of it, once.
        """
        line = self._lines[self._of[id]]
        ticket = line.flying.pop(id)
        if not line.flying:
            line.quiet_since = now
        if absent:
            if line.up and now >= line.absent_until:
                line.absent_until = now + ABSENT_S
            if ticket.wakes and ticket.patient and not ticket.absent:
                ticket.absent, ticket.tries = True, ticket.tries - 1
        if ticket.tries >= self.limits.tries:
            return [self._refuse(line, ticket, 502, "upstream_failed", f"{ticket.model} ended the connection before it answered, twice: {why}")]  # fmt: skip
        if not ticket.wakes:
            return [self._refuse(line, ticket, 502, "upstream_failed", f"{ticket.model} ended the connection before it answered: {why}")]  # fmt: skip
        ticket.excused = ticket.excused or line.seen.state is ModelState.FAILED
        ticket.not_before = now + AGAIN_S
        self._hold(line, ticket, now)
        return self._settle(line, now)

    def tick(self, now: float) -> list[Action]:
        """Look at everything that waits.  Nothing waits: nothing to do."""
        if not self.restless:
            return []
        actions: list[Action] = []
        for line in list(self._lines.values()):
            if line.claim is not None and now > line.claim_until:
                self._unclaim(line)
            if line.waiting or line.claim is not None:
                actions += self._settle(line, now)
        return actions

    # ------------------------------------------------------------------ inside

    def _settle(self, line: Line, now: float) -> list[Action]:
        """What can be done for those who wait for one model."""
        actions: list[Action] = []
        if self._takes(line, now):
            return [self._forward(line, ticket) for ticket in list(line.waiting.values()) if now >= ticket.not_before]
        for ticket in list(line.waiting.values()):
            hopeless = self._hopeless(line, ticket, now)
            if hopeless is not None:
                actions.append(hopeless)
            elif line.seen.state is not ModelState.STARTING and _waited(ticket, now) > self.limits.hold_s:
                text = f"{ticket.model} is {line.seen.state} and had no turn within {self.limits.hold_s:g} s"
                actions.append(self._come_again(line, ticket, "model_not_placed", _because(text, line.seen), now))
        oldest = line.oldest
        if oldest is not None:
            actions += self._rouse(line, oldest, now)
        return actions + self._make_room(line, now)

    def _come_again(self, line: Line, ticket: Ticket, code: str, text: str, now: float) -> Refuse:
        """Refused with the time of its turn, which is kept for it meanwhile."""
        turn = self._turn_in(line, now)
        line.claim = min(ticket.at, line.claim if line.claim is not None else now)
        line.claim_until = now + turn + self.limits.hold_s
        self._claimed.add(line.seen.name)
        return self._refuse(line, ticket, 503, code, text, turn)

    def _unclaim(self, line: Line) -> None:
        line.claim = None
        self._claimed.discard(line.seen.name)

    def _rouse(self, line: Line, ticket: Ticket, now: float) -> list[Action]:
        if line.seen.state not in (ModelState.ASLEEP, ModelState.FAILED) or now - line.asked_at < ASK_AGAIN_S:
            return []
        if line.backoff_s(now) > 0:
            return []
        line.asked_at = now
        return [Wake(line.seen.name, ticket.what, ticket.who, ticket.id)]

    def _make_room(self, line: Line, now: float) -> list[Action]:
        """Ask the model that is in the way to leave, where it has nothing to do or has had its time."""
        since = line.due_since
        if line.seen.state is not ModelState.QUEUED or since is None:
            return []
        blockers = [self._lines[name] for name in line.seen.blocked_by if name in self._lines]
        if any(
            b.seen.state in (ModelState.DRAINING, ModelState.ASLEEP) or now - b.asked_at < ASK_AGAIN_S for b in blockers
        ):
            return []  # one is leaving already
        idle = [b for b in blockers if b.up and not b.seen.resident and not b.flying]
        free = [b for b in idle if now - b.left_at < LEAVING_S]  # asked already, and not counted twice
        if not free:
            if self._swaps.due_in(now) > 0:
                return []
            free = [b for b in idle if self._is_quiet(b, now)] or [b for b in idle if self._is_due(b, since, now)]
            if not free:
                return []
            self._swaps.made(now)
        chosen = min(free, key=lambda b: b.quiet_since)
        if now - chosen.left_at >= LEAVING_S:
            chosen.left_at = now
        chosen.asked_at = now
        return [Sleep(chosen.seen.name, f"makes room for {line.seen.name}, for which {len(line.waiting) or 1} wait")]

    def _takes(self, line: Line, now: float) -> bool:
        """Is a request sent to it at once?"""
        return line.up and now >= line.absent_until and not self._yields(line, now)

    def _yields(self, line: Line, now: float) -> bool:
        """Does it take nothing new, because somebody has waited long enough for its place?"""
        if line.seen.resident:
            return False
        if now - line.left_at < LEAVING_S:
            return True
        if not self._is_awaited(line, now):
            line.yields_since, line.obstacles = None, ()
            return False
        if line.obstacles:
            if any(id in line.flying for id in line.obstacles):
                return False
            line.yields_since, line.obstacles = now, ()
        if line.yields_since is None:
            line.yields_since = now
        if line.flying and now - line.yields_since >= self.limits.drain_s * 2**line.fruitless:
            # A long stream is not cut, and nobody gains where others wait for its end.  Twice as long the next time:
            # however long streams are, and however many follow each other, there comes a time that lasts beyond them.
            line.fruitless, line.obstacles = line.fruitless + 1, tuple(line.flying)
            return False
        return True

    def _is_awaited(self, line: Line, now: float) -> bool:
        """Has somebody waited long enough for its place, which may change hands now?"""
        return self._swaps.due_in(now) <= 0 and any(
            other.due_since is not None
            and other.seen.state is ModelState.QUEUED
            and line.seen.name in other.seen.blocked_by
            and self._is_due(line, other.due_since, now)
            for other in self._lines.values()
        )

    def _is_quiet(self, up: Line, now: float) -> bool:
        """Nobody asks it for anything; whoever it came up for has had the time to come again."""
        quiet_s = self.limits.quiet_s if up.claim is None else self.limits.patience_s
        return not up.waiting and now - up.quiet_since >= quiet_s

    def _is_due(self, up: Line, since: float, now: float) -> bool:
        """The one that waits has been patient, and the one that is up has had its time."""
        return now - since >= self.limits.patience_s and now - up.since >= self.limits.residence_s

    def _turn_in(self, line: Line, now: float) -> float:
        """About how many seconds until it can answer."""
        seen, limits = line.seen, self.limits
        match seen.state:
            case ModelState.STARTING:
                return max(1.0, line.load_s - (now - line.since))
            case ModelState.QUEUED:
                before = sum(1 for o in self._lines.values() if o.due_since is not None and o.seen.state is ModelState.QUEUED and o.since < line.since)  # fmt: skip
                since = line.due_since
                patience = max(0.0, limits.patience_s - (now - (since if since is not None else now)))
                turn = max(self._swaps.apart_s, limits.residence_s)
                return max(self._swaps.due_in(now), patience, self._lasts(line, now)) + before * turn + line.load_s
            case ModelState.READY:  # somebody else is due: after that one's turn
                return max(self._swaps.apart_s, limits.patience_s) + line.load_s
            case ModelState.FAILED | ModelState.ASLEEP | ModelState.DRAINING:
                return line.backoff_s(now) + line.load_s

    def _lasts(self, line: Line, now: float) -> float:
        """How much longer what is in flight in its way may be: about as long as it already is, for all that is known."""
        blockers = [self._lines[name] for name in line.seen.blocked_by if name in self._lines]
        ages = [now - ticket.at for blocker in blockers for ticket in blocker.flying.values()]
        longest = max(ages, default=0.0)
        return min(longest, LASTS_S) if longest > self.limits.patience_s else 0.0

    def _hopeless(self, line: Line, ticket: Ticket, now: float) -> Refuse | None:
        """Waiting does not help, or not for now."""
        seen = line.seen
        if seen.window and seen.state not in (ModelState.STARTING, ModelState.READY):
            left = line.told + seen.retry_after_s - now
            patience = self.limits.hold_s - _waited(ticket, now) if ticket.patient else 0.0
            if left > patience:
                return self._refuse(
                    line, ticket, 503, "card_in_window", f"{seen.name} cannot wake: {seen.window}", left
                )
            return None
        if seen.state is ModelState.QUEUED and not seen.placeable:
            return self._refuse(line, ticket, 503, "model_not_placed", _because(f"{seen.name} cannot be placed", seen), 60)  # fmt: skip
        left = line.backoff_s(now)
        if left > 0 and not ticket.excused:
            patience = self.limits.hold_s - _waited(ticket, now) if ticket.patient else 0.0
            if left > min(self.limits.backoff_s, patience):
                return self._refuse(line, ticket, 503, "model_failed", _because(f"{seen.name} failed", seen), left)
        return None

    def _failed(self, line: Line) -> list[Action]:
        """Its server has ended.  Who waited for it to load hears why; who came for one that was up waits once more."""
        actions: list[Action] = []
        self._unclaim(line)
        for ticket in list(line.waiting.values()):
            came_for_it = line.served or ticket.tries or ticket.absent
            if came_for_it and not ticket.excused and line.seen.retry_after_s < self.limits.hold_s:
                ticket.excused = True
            else:
                text = _because(f"{line.seen.name} failed", line.seen)
                actions.append(self._refuse(line, ticket, 503, "model_failed", text, max(1.0, line.seen.retry_after_s)))
        return actions

    def _hold(self, line: Line, ticket: Ticket, now: float) -> None:
        ticket.held_at = now
        line.waiting[ticket.id] = ticket
        self.held += 1

    def _forward(self, line: Line, ticket: Ticket) -> Forward:
        if line.waiting.pop(ticket.id, None) is not None:
            self.held -= 1
        self._unclaim(line)
        ticket.tries += 1
        line.flying[ticket.id] = ticket
        assert line.seen.port is not None
        return Forward(ticket.id, line.seen.port, line.seen.run)

    def _refuse(
        self, line: Line, ticket: Ticket, status: int, code: str, message: str, retry_after_s: float | None = None
    ) -> Refuse:
        if line.waiting.pop(ticket.id, None) is not None:
            self.held -= 1
        self._of.pop(ticket.id, None)
        return Refuse(ticket.id, status, code, message, retry_after_s)


def _gone(model: str) -> str:
    return f"the model {model!r} is no longer declared"


def _waited(ticket: Ticket, now: float) -> float:
    return now - max(ticket.at, ticket.held_at or 0)


def _because(text: str, seen: Seen) -> str:
    why = ": ".join(part for part in (seen.reason, seen.message) if part)
    return f"{text}: {why}" if why else text
