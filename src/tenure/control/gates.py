"""What keeps a queued job from being considered at all: a hold, a time, another job, its array's limit.

Kueue leaves these to others; here they are asked before the engine is, each with its own reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenure.domain.ids import Instant, JobId
from tenure.domain.job import Dependency, DependencyKind
from tenure.domain.lifecycle import JobState, Outcome
from tenure.domain.reasons import EvictionReason, PendingReason
from tenure.ledger import JobRow, Ledger

from .clock import wire
from .live import Live

__all__ = ["WAITS_OUTSIDE", "Closed", "Gates"]

WAITS_OUTSIDE = frozenset(
    {
        PendingReason.WAITING_FOR_DEPENDENCY,
        PendingReason.WAITING_FOR_BEGIN_TIME,
        PendingReason.WAITING_FOR_ARRAY_LIMIT,
        PendingReason.WAITING_FOR_WINDOW,
    }
)
"""Of a job that waits for a time or for others, and not for quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A gate that is shut.  `never`: no event can open it.  `wakes`: it opens by itself then (steady time)."""

    reason: PendingReason | EvictionReason
    message: str
    wakes: Instant | None = None
    never: bool = False


class Gates:
    """Remembers who waits for whom, so that an ending job wakes only its dependents.  Who has left is remembered no more."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._dependents: dict[str, set[JobId]] = {}
        self._inside: dict[JobId, set[JobId]] = {}  # tasks of limited arrays that passed the gate
        self._outside: dict[JobId, dict[JobId, None]] = {}  # those that are next, in the order in which they came
        self._vacant: set[JobId] = set()  # arrays in which a place was given up

    def check(self, live: Live, *, now: Instant) -> Closed | None:
        """The first shut gate of a queued job, or None: let it in.  `next_ones` are to be looked at after it.

        A task keeps its place in a limited array from one attempt to the next.  One that is held, or waits for something
        of its own before its first, stands aside for the others.
        """
        shut = self._own(live, now)
        if shut is None:
            return self._array_limit(live)
        if live.array_id is not None:
            self._outside.get(live.array_id, {}).pop(live.id, None)
            if live.held or not live.attempts:
                self._give_up_place(live.id, live.array_id)
        return shut

    def next_ones(self) -> set[JobId]:
        """Who may take a place in an array that has been given up since this was last asked."""
        vacant, self._vacant = self._vacant, set()
        return {next(iter(waiting)) for array in vacant if (waiting := self._outside.get(array))}

    def left(self, live: Live) -> set[JobId]:
        """A job ended: who should be looked at again."""
        woken = self._dependents.pop(live.id, set())
        for dependency in live.spec.after:
            self._no_longer_waits(live.id, dependency.job)
        if live.array_id is None:
            return woken
        woken |= self._dependents.get(live.array_id, set())
        if (waiting := self._outside.get(live.array_id)) is not None:
            waiting.pop(live.id, None)
            if not waiting:
                del self._outside[live.array_id]
        self._give_up_place(live.id, live.array_id)
        self._vacant.add(live.array_id)
        return woken | self.next_ones()

    def started(self, live: Live) -> set[JobId]:
        """A job started: those who wait only for that."""
        return set(self._dependents.get(live.id, ())) | set(self._dependents.get(live.array_id or "", ()))

    def _own(self, live: Live, now: Instant) -> Closed | None:
        """What it waits for by itself: to be released, a time, another job."""
        if live.held and live.reason == PendingReason.DEACTIVATED:
            return Closed(reason=PendingReason.DEACTIVATED, message=live.message)
        if live.held:
            return Closed(
                reason=PendingReason.SUSPENDED, message=f"held; `tenure release {live.id}` lets it be considered"
            )
        if live.not_before is not None and live.not_before > now:
            reason: PendingReason | EvictionReason
            if live.reason in (EvictionReason.PODS_READY_TIMEOUT, EvictionReason.ADMISSION_CHECK):
                reason = EvictionReason(live.reason)
            else:
                reason = PendingReason.LAUNCH_BACKOFF if live.launch_failures else PendingReason.WAITING_FOR_BEGIN_TIME
            return Closed(
                reason=reason, message=f"{live.message}; not before {wire(live.not_before)}", wakes=live.not_before
            )
        begin = live.spec.begin_at
        if begin is not None and begin > now:
            return Closed(reason=PendingReason.WAITING_FOR_BEGIN_TIME, message=f"not before {wire(begin)}", wakes=begin)
        return next((shut for d in live.spec.after if (shut := self._dependency(live, d)) is not None), None)

    def _array_limit(self, live: Live) -> Closed | None:
        if live.array_id is None or live.array_limit is None:
            return None
        inside = self._inside.setdefault(live.array_id, set())
        outside = self._outside.setdefault(live.array_id, {})
        if live.id in inside or len(inside) < live.array_limit:
            inside.add(live.id)
            outside.pop(live.id, None)
            return None
        outside[live.id] = None
        return Closed(
            reason=PendingReason.WAITING_FOR_ARRAY_LIMIT,
            message=f"array {live.array_id} lets {live.array_limit} tasks in at once",
        )

    def _give_up_place(self, job: JobId, array: JobId) -> None:
        inside = self._inside.get(array)
        if inside is not None and job in inside:
            inside.discard(job)
            self._vacant.add(array)
            if not inside:
                del self._inside[array]

    def _no_longer_waits(self, job: JobId, name: str) -> None:
        waiting = self._dependents.get(name)
        if waiting is not None:
            waiting.discard(job)
            if not waiting:
                del self._dependents[name]

    def _dependency(self, live: Live, dependency: Dependency) -> Closed | None:
        row = self._ledger.find_job(dependency.job)
        rows = [row] if row is not None else self._ledger.array(dependency.job)
        verdicts = [_verdict(r, dependency.kind) for r in rows]
        if "never" in verdicts or not rows:
            culprit = rows[verdicts.index("never")] if rows else None
            how = f"ended {culprit.outcome}" if culprit else "does not exist"
            return Closed(
                reason=PendingReason.DEPENDENCY_NEVER_SATISFIED,
                message=f"{dependency.kind}:{dependency.job} can never be met: "
                f"{culprit.id if culprit else dependency.job} {how}",
                never=True,
            )
        waiting = [r.id for r, verdict in zip(rows, verdicts, strict=True) if verdict == "wait"]
        if not waiting:
            return None
        for name in (dependency.job, *waiting):
            self._dependents.setdefault(name, set()).add(live.id)
        more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
        return Closed(
            reason=PendingReason.WAITING_FOR_DEPENDENCY, message=f"{dependency.kind}: waits for {waiting[0]}{more}"
        )


def _verdict(row: JobRow, kind: DependencyKind) -> str:
    ended = row.state is JobState.ENDED
    match kind:
        case DependencyKind.AFTER:
            return "met" if ended or row.started_at is not None else "wait"
        case DependencyKind.AFTER_ANY:
            return "met" if ended else "wait"
        case DependencyKind.AFTER_OK:
            return "wait" if not ended else "met" if row.outcome is Outcome.COMPLETED else "never"
        case DependencyKind.AFTER_NOT_OK:
            return "wait" if not ended else "never" if row.outcome is Outcome.COMPLETED else "met"
