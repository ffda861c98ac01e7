"""FakeBackend: attempts in memory whose every step the test decides, and which keep the backends' contract.

    backend = FakeBackend()
    backend.open(listener)
    backend.start(attempt)                 # running at once, unless the program is listed in `unstartable`
    backend.finish(attempt.run_id, 0)      # it leaves by itself
    backend.lose(attempt.run_id)           # its supervisor dies without a word

`News` is delivered from the calling thread, or on `deliver()` where `manual` is set.  A second FakeBackend over the same
`World` is a daemon that came back.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tenure.domain.attempt import (
    AttemptSpec,
    AttemptState,
    Health,
    Listener,
    Observation,
    Stop,
    StopKind,
    Survivor,
)  # fmt: skip
from tenure.domain.errors import LaunchError
from tenure.domain.ids import Instant, RunId
from tenure.domain.lifecycle import Outcome

__all__ = ["FakeBackend", "World"]

_ENDED = frozenset({AttemptState.ENDED, AttemptState.LAUNCH_FAILED})


@dataclass(slots=True)
class _Attempt:
    spec: AttemptSpec
    seen: Observation
    stops: list[Stop] = field(default_factory=list)
    left: dict[int, int] = field(default_factory=dict)  # rank -> exit code
    wanted: int = 1


@dataclass(slots=True)
class World:
    """What outlives a daemon: the attempts, and how the programs behave.

    `stubborn` attempts ignore a stop until `finish`, or until a stop without grace; `unstartable` are programs
    (argv[0]) that do not exist.
    """

    attempts: dict[RunId, _Attempt] = field(default_factory=dict)
    stubborn: set[RunId] = field(default_factory=set)
    unstartable: set[str] = field(default_factory=set)
    starts: list[RunId] = field(default_factory=list)  # every real start, in order
    stops: list[tuple[RunId, Stop]] = field(default_factory=list)  # every stop that was asked for


class FakeBackend:
    """See the module.  `clock` gives microseconds since the epoch."""

    name = "local"

    def __init__(
        self,
        world: World | None = None,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
        manual: bool = False,
    ) -> None:
        self.world = world or World()
        self.refuse: LaunchError | None = None  # what the next `start` raises
        self.healthy = True
        self._clock, self._manual = clock, manual
        self._lock = threading.RLock()
        self._told: set[RunId] = set()
        self._queue: deque[Observation] = deque()
        self._listener: Listener | None = None

    # -- the protocol -----------------------------------------------------------------------------------------------

    def open(self, listener: Listener) -> None:
        self._listener = listener

    def close(self) -> None:
        self._listener = None

    def probe(self) -> Health:
        return Health(ok=self.healthy, message="" if self.healthy else "told to be unwell")

    def start(self, attempt: AttemptSpec) -> None:
        with self._lock:
            if self.refuse is not None:
                error, self.refuse = self.refuse, None
                raise error
            known = self.world.attempts.get(attempt.run_id)
            if known is not None:  # started once, by us or by an earlier daemon: then we have something to tell
                if attempt.run_id not in self._told:
                    self._say(known)
                return
            now = self._now()
            one = _Attempt(attempt, Observation(run_id=attempt.run_id, state=AttemptState.STARTING, at=now))
            one.wanted = len(attempt.processes)
            self.world.attempts[attempt.run_id] = one
            program = attempt.job.argv[0] if attempt.job.argv else ""
            if program in self.world.unstartable:
                self._say(
                    one, state=AttemptState.LAUNCH_FAILED, outcome=Outcome.FAILED, exit_code=127, reason="CommandNotFound",
                    message=f"cannot run {program!r}: not found", ended_at=now,
                )  # fmt: skip
                return
            self.world.starts.append(attempt.run_id)
            self._say(one, state=AttemptState.RUNNING, started_at=now, processes=one.wanted)

    def observe(self, attempts: Sequence[tuple[RunId, str]]) -> Mapping[RunId, Observation]:
        with self._lock:
            absent = Observation(run_id=RunId(""), state=AttemptState.ABSENT, at=self._now())
            known = self.world.attempts
            return {run: known[run].seen if run in known else replace(absent, run_id=run) for run, _ in attempts}

    def stop(self, run: RunId, run_dir: str, stop: Stop) -> None:
        with self._lock:
            self.world.stops.append((run, stop))
            one = self.world.attempts.get(run)
            if one is None or one.seen.state in _ENDED:
                return
            one.stops.append(stop)
            self._say(one, state=AttemptState.STOPPING)
            if run not in self.world.stubborn:
                self._end(one, 143, 15)
            elif stop.grace_s < 1:  # a grace that no test waits for
                self._end(one, 137, 9)

    def shrink(self, run: RunId, run_dir: str, count: int, stop: Stop) -> None:
        with self._lock:
            one = self.world.attempts.get(run)
            if one is None or one.seen.state in _ENDED or count >= one.wanted:
                return
            one.wanted = count
            self._say(one, processes=count)

    # -- what a test decides ----------------------------------------------------------------------------------------

    def finish(self, run: RunId, exit_code: int = 0, *, rank: int = 0, signal: int | None = None) -> None:
        """A process leaves by itself; a gang ends with its first failure or its last process."""
        with self._lock:
            one = self.world.attempts[run]
            if one.seen.state in _ENDED:
                return
            one.left[rank] = exit_code
            failed = exit_code != 0 and rank < one.wanted
            if failed or one.stops or all(k in one.left for k in range(one.wanted)):
                self._end(one, exit_code, signal, failed_rank=rank if failed and len(one.spec.processes) > 1 else None)

    def survive(self, run: RunId, *survivors: Survivor) -> None:
        """The attempt was stopped and these are still there; `finish` ends it."""
        with self._lock:
            self._say(self.world.attempts[run], state=AttemptState.STOPPING, survivors=survivors)

    def lose(self, run: RunId, *, reason: str = "SupervisorLost") -> None:
        """The supervisor died; what was left has been ended."""
        with self._lock:
            one = self.world.attempts[run]
            cancelled = any(stop.kind is StopKind.CANCEL for stop in one.stops)
            outcome = Outcome.CANCELLED if cancelled else Outcome.INTERRUPTED
            self._say(
                one, state=AttemptState.ENDED, outcome=outcome, reason=reason, message="the supervisor was killed",
                ended_at=self._now(), survivors=(),
            )  # fmt: skip

    def deliver(self) -> int:
        """Hand over what is queued (`manual`); returns how much it was."""
        count = 0
        while self._queue:
            seen = self._queue.popleft()
            count += 1
            if self._listener is not None:
                self._listener(seen)
        return count

    # -- within -----------------------------------------------------------------------------------------------------

    def _now(self) -> Instant:
        return Instant(self._clock())

    def _end(self, one: _Attempt, code: int, signal: int | None, *, failed_rank: int | None = None) -> None:
        outcome, reason, message = Outcome.COMPLETED if code == 0 else Outcome.FAILED, "", ""
        if one.stops:
            first = one.stops[0]
            cancel = next((stop for stop in one.stops if stop.kind is StopKind.CANCEL), None)
            outcome, reason, message = Outcome.INTERRUPTED, first.reason, first.message
            if cancel is not None:
                outcome, reason, message = Outcome.CANCELLED, cancel.reason, cancel.message
            elif first.kind is StopKind.TIME_LIMIT:
                outcome, code, reason = Outcome.FAILED, 124, "TimeLimit"
            failed_rank = None
        elif failed_rank is not None:
            reason, message = "GangMemberFailed", f"rank {failed_rank} exited with code {code}"
        elif code != 0:
            message = f"exited with code {code}"
        self._say(
            one, state=AttemptState.ENDED, outcome=outcome, exit_code=code, signal=signal, reason=reason, message=message,
            failed_rank=failed_rank, ended_at=max(self._now(), one.seen.started_at or 0), survivors=(),
        )  # fmt: skip

    def _say(self, one: _Attempt, **fields: object) -> None:
        one.seen = replace(one.seen, at=self._now(), **fields)  # type: ignore[arg-type]
        self._told.add(one.seen.run_id)
        self._queue.append(one.seen)
        if not self._manual:
            self.deliver()
