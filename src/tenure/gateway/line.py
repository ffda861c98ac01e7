"""One model at the desk: who waits for it, who is with it, and since when it is as it is.  Times are steady, in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure.domain.model import ModelState

from .words import Seen, Ticket

__all__ = ["Line"]

LOAD_S = 5.0  # what a model is thought to need from its start until it is ready, before it was seen to


@dataclass(slots=True)
class Line:
    """Changed by the desk alone."""

    seen: Seen
    since: float  # when it came into this state
    told: float = -1e9  # when that was last heard
    waiting: dict[int, Ticket] = field(default_factory=dict)
    flying: dict[int, Ticket] = field(default_factory=dict)
    served: bool = False  # the server that is there, or has just left, was up
    absent_until: float = (
        -1e9
    )  # it is said to be up and nobody listens there: until then the platform may find that out
    asked_at: float = -1e9  # when a wake or a sleep was last asked for
    left_at: float = -1e9  # when it was first asked to make room, in this state
    quiet_since: float = -1e9
    load_s: float = LOAD_S  # what its last start took
    yields_since: float | None = None
    fruitless: int = 0  # how often it took nothing new in vain
    obstacles: tuple[int, ...] = ()  # those in flight that this was in vain for
    claim: float | None = None  # since when it is due for somebody who was refused with a time, and is to come again
    claim_until: float = 0.0

    @property
    def oldest(self) -> Ticket | None:
        return next(iter(self.waiting.values()), None)

    @property
    def due_since(self) -> float | None:
        """Since when somebody has waited for it, here or away."""
        oldest = self.oldest
        if self.claim is None or oldest is None:
            return self.claim if oldest is None else oldest.at
        return min(self.claim, oldest.at)

    @property
    def up(self) -> bool:
        return self.seen.state is ModelState.READY and self.seen.port is not None

    def backoff_s(self, now: float) -> float:
        """How long nothing wakes it yet, after a failure.  What is said counts from when it is said."""
        if self.seen.state is not ModelState.FAILED:
            return 0.0
        return max(0.0, self.told + self.seen.retry_after_s - now)

    def fails_again(self, seen: Seen) -> bool:
        """It had failed, and a wake has failed since without another state in between: its backoff has begun anew."""
        return self.seen.state is seen.state is ModelState.FAILED and seen.failures > self.seen.failures

    def moved(self, seen: Seen, now: float) -> None:
        """Into another state, or another run of the same."""
        if seen.state not in (ModelState.DRAINING, ModelState.FAILED):
            self.served = seen.state is ModelState.READY
        elif self.seen.state is ModelState.FAILED:
            self.served = False  # the next one was not even begun
        if seen.state is ModelState.READY:
            self.quiet_since = now
            if self.seen.state is ModelState.STARTING:
                self.load_s = now - self.since
        self.since, self.asked_at, self.left_at, self.seen = now, -1e9, -1e9, seen
        self.absent_until = -1e9
        self.yields_since, self.fruitless, self.obstacles = None, 0, ()
