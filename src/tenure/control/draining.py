"""A server is asked to leave when nothing is in flight any more, or when its time is nearly over.

`stopTimeout` is shared: what is in flight may end for all of it but a last part, which is the server's own to leave in.
From the first moment on the table says `draining`, and the gateway forwards nothing new; what it had forwarded until then
is known once it has said so, or has had the time to.  No connection at all means that nothing is in flight, whoever says
otherwise: so it is with a gateway that has died.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tenure.domain.attempt import Stop
from tenure.domain.ids import RunId

__all__ = ["Drain", "last_part_s"]

SETTLE_S = 0.05  # a gateway that was silent has its word here by then
REPORT_S = 0.25  # one that has just spoken does not speak again before that
LOOK_US = 20_000  # between two looks at who is connected
ACK_S = 1.0  # one that says which table it has seen is waited for no longer than this


def last_part_s(stop_timeout_s: float) -> float:
    """What is left of `stopTimeout` when SIGTERM goes out at the latest: a quarter, five seconds at most."""
    return min(5.0, stop_timeout_s / 4)


@dataclass(slots=True)
class Drain:
    """One run on its way out.  Times are steady; `version` is the first table that says it is draining."""

    run: RunId
    began_us: int
    stop_timeout_s: float
    served: bool  # a request may have been sent to it
    inherited: bool = False  # by whom, an earlier daemon knew: whoever is connected may have something in flight
    stop: Stop | None = None  # an eviction's, that waits until it is over
    version: int | None = None
    told_us: int = 0  # when the gateway had last spoken before
    connections: int = 1  # when last counted, at `counted_us`
    counted_us: int = 0
    is_over: bool = False
    sent: bool = False

    @property
    def ends_us(self) -> int:
        """When the kill comes."""
        return self.began_us + int(self.stop_timeout_s * 1e6)

    @property
    def last_call_us(self) -> int:
        return self.ends_us - int(last_part_s(self.stop_timeout_s) * 1e6)

    def grace_s(self, now: int) -> float:
        """What the server has from now on, never less than the last part."""
        return max(last_part_s(self.stop_timeout_s), (self.ends_us - now) / 1e6)

    def stop_now(self, now: int) -> Stop:
        assert self.stop is not None
        return replace(self.stop, grace_s=min(self.stop.grace_s, self.grace_s(now)))

    def look(self, now: int, *, in_flight: int, connections: int, seen: int | None) -> bool:
        """Is it over?  Once it is, it stays so.  `seen`: the table that the gateway has seen, None where it does not say."""
        if not self.is_over:
            nothing = (
                not self.served
                or connections == 0
                or (in_flight == 0 and not self.inherited and self._settled(now, seen))
            )
            self.is_over = nothing or now >= self.last_call_us
        return self.is_over

    def _settled(self, now: int, seen: int | None) -> bool:
        passed = now - self.began_us
        if seen is not None and self.version is not None:
            return seen >= self.version or passed >= ACK_S * 1e6
        just_spoke = self.began_us - self.told_us < REPORT_S * 1e6
        return passed >= (REPORT_S if just_spoke else SETTLE_S) * 1e6

    def due_us(self, now: int) -> int:
        """When to look again, whatever is heard until then."""
        passed = now - self.began_us
        step = SETTLE_S if passed < ACK_S * 1e6 else REPORT_S
        return min(now + int(step * 1e6), max(now, self.last_call_us))
