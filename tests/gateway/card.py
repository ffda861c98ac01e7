"""A card with a place for one, played: models that load and leave, clients that ask and wait, and the desk between them.

Time is a number here, and minutes pass in milliseconds.  The platform's part is what `tenure` does: whoever was asked for
first is let in first, and a model leaves when it has nothing in flight.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tenure.domain.model import ModelState as S
from tenure.gateway.policy import Desk
from tenure.gateway.words import Action, Forward, Limits, Refuse, Seen, Sleep, Ticket, Wake

TICK_S = 0.25


@dataclass(kw_only=True)
class Asked:
    """One request, from its arrival to its one end."""

    id: int
    model: str
    at: float
    takes: float
    ended: Callable[[Asked], None]
    sent_at: float | None = None
    over_at: float | None = None
    refused: Refuse | None = None
    left: bool = False


@dataclass(kw_only=True)
class Client:
    """Asks for `models` in turn, each as soon as it has its answer and `think` seconds more; comes again when it was told to."""

    models: tuple[str, ...]
    takes: float = 0.2
    think: float = 0.0
    patient: bool = True
    leaves_after: float | None = None
    asked: list[Asked] = field(default_factory=list)


class Card:
    def __init__(self, *names: str, limits: Limits, load: float = 1.0, leave: float = 0.5, lag: float = 0.1) -> None:
        self.desk, self.limits = Desk(limits), limits
        self.load, self.leave, self.lag = load, leave, lag
        self.now = 0.0
        self.models = {name: Seen(name=name, state=S.ASLEEP) for name in names}
        self.queue: list[str] = []  # who was asked for, in that order
        self.flying: dict[int, Asked] = {}
        self.open: dict[int, Asked] = {}
        self.every: list[Asked] = []
        self.swaps: list[float] = []
        self.starts: list[tuple[float, str]] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._next = self._runs = 0
        self.desk.see(list(self.models.values()), 0)
        self._tick()

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self._next += 1
        heapq.heappush(self._events, (self.now + seconds, self._next, event))

    # ------------------------------------------------------------------ clients

    def client(self, client: Client, until: float) -> None:
        self._turn(client, 0, until)

    def _turn(self, client: Client, number: int, until: float) -> None:
        if self.now >= until:
            return

        def ended(asked: Asked) -> None:
            if asked.refused is not None:
                assert asked.refused.retry_after_s is not None, "refused without a time"
                again = max(1.0, float(-(-asked.refused.retry_after_s // 1)))  # as the header says it: whole seconds
                self.after(again, lambda: self._turn(client, number, until))
            else:
                self.after(client.think, lambda: self._turn(client, number + 1, until))

        asked = self.ask(client.models[number % len(client.models)], client.takes, ended, patient=client.patient)
        client.asked.append(asked)
        if client.leaves_after is not None:
            self.after(client.leaves_after, lambda: self.go(asked))

    def ask(self, model: str, takes: float, ended: Callable[[Asked], None], *, patient: bool = True) -> Asked:
        self._next += 1
        asked = Asked(id=self._next, model=model, at=self.now, takes=takes, ended=ended)
        self.every.append(asked)
        self.open[asked.id] = asked
        ticket = Ticket(id=asked.id, model=model, at=self.now, patient=patient, what="a test", who="me")
        self.do(self.desk.arrive(ticket, self.now))
        return asked

    def go(self, asked: Asked) -> None:
        """The client leaves."""
        if asked.id in self.open:
            asked.left = True
            self._over(asked)
            self.do(self.desk.finished(asked.id, self.now))

    def _over(self, asked: Asked) -> None:
        assert asked.over_at is None, "ended twice"
        asked.over_at = self.now
        del self.open[asked.id]
        self.flying.pop(asked.id, None)
        asked.ended(asked)

    def _answered(self, asked: Asked) -> None:
        if asked.id in self.flying:
            self._over(asked)
            self.do(self.desk.finished(asked.id, self.now))
            self._leave()

    # ------------------------------------------------------------------ the platform

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Forward(ticket=id):
                    asked = self.open[id]
                    assert id not in self.flying, "sent twice"
                    assert self.models[asked.model].state in (S.READY, S.DRAINING), "sent to a model that is not up"
                    asked.sent_at = self.now
                    self.flying[id] = asked
                    self.after(asked.takes, lambda asked=asked: self._answered(asked))  # type: ignore[misc]
                case Refuse(ticket=id):
                    assert id not in self.flying, "refused in flight"
                    asked = self.open[id]
                    asked.refused = action
                    self._over(asked)
                case Wake(model=name):
                    if self.models[name].state is S.ASLEEP:
                        self.queue.append(name)
                        self.change(name, S.QUEUED)
                        self._admit()
                case Sleep(model=name):
                    assert not any(asked.model == name for asked in self.flying.values()), (
                        "a busy model is put to sleep"
                    )
                    if self.models[name].state is S.READY:
                        self.swaps.append(self.now)
                        self.change(name, S.DRAINING)
                        self._leave()

    def change(self, name: str, state: S) -> None:
        self.models[name] = replace(self.models[name], state=state, port=1, run=f"{name}.{self._runs}")
        holder = next((n for n, m in self.models.items() if m.state in (S.STARTING, S.READY, S.DRAINING)), None)
        for other, model in self.models.items():
            blocked = (holder,) if model.state is S.QUEUED and holder is not None else ()
            self.models[other] = replace(model, blocked_by=blocked)
        table = list(self.models.values())
        self.after(self.lag, lambda: self.do(self.desk.see(table, self.now)))

    def _leave(self) -> None:
        for name, model in self.models.items():
            if model.state is S.DRAINING and not any(asked.model == name for asked in self.flying.values()):
                self.after(self.leave, lambda name=name: self._left(name))  # type: ignore[misc]

    def _left(self, name: str) -> None:
        if self.models[name].state is S.DRAINING:
            self.change(name, S.ASLEEP)
            self._admit()

    def _admit(self) -> None:
        if self.queue and not any(m.state in (S.STARTING, S.READY, S.DRAINING) for m in self.models.values()):
            name = self.queue.pop(0)
            self._runs += 1
            self.starts.append((self.now, name))
            self.change(name, S.STARTING)
            self.after(self.load, lambda: self.change(name, S.READY))

    def _tick(self) -> None:
        self.do(self.desk.tick(self.now))
        self.after(TICK_S, self._tick)

    # ------------------------------------------------------------------ what is promised

    def check(self) -> None:
        """Each has one end and was not held for longer than it may be; swaps are bounded."""
        most = self.limits.swaps_per_minute
        for at in self.swaps:
            assert sum(1 for other in self.swaps if at <= other < at + 60) <= most, (at, self.swaps)
        bound = self.limits.hold_s + self.load + 3 * TICK_S + self.lag
        for asked in self.every:
            until = asked.sent_at if asked.sent_at is not None else asked.over_at
            assert (until if until is not None else self.now) - asked.at <= bound, asked
        assert not self.open, "somebody waits for ever"
        assert self.desk.held == 0
