"""The life of a job, as a table `(state, event) -> state`.

SQL guards, `docs/lifecycle.md` and tests are read off this table; nothing else decides what may follow what.
"""

from __future__ import annotations

from enum import StrEnum

from .errors import IllegalTransition

__all__ = ["HOLDS_QUOTA", "TERMINAL", "TRANSITIONS", "JobEvent", "JobState", "Outcome", "legal_events", "next_state"]


class JobState(StrEnum):
    """Where a job is.  Only `HOLDS_QUOTA` states count against quota and cards."""

    QUEUED = "queued"
    ADMITTED = "admitted"
    RUNNING = "running"
    EVICTING = "evicting"
    CANCELLING = "cancelling"
    ENDED = "ended"


class JobEvent(StrEnum):
    """What can happen to a job."""

    ADMIT = "admit"  # the engine reserved quota and a place
    START = "start"  # the supervisor reported the first process of the attempt
    FAIL_LAUNCH = "fail-launch"  # the attempt could not be started: back to the queue, with a backoff
    GIVE_UP = "give-up"  # it will never start (launches exhausted, a dependency failed, a deadline passed)
    EVICT = "evict"  # the platform asked the attempt to stop; the job will be queued again
    CANCEL = "cancel"  # a person or agent asked for the end
    RELEASE = "release"  # the attempt has left: every process is gone, its quota is free
    REQUEUE = "requeue"  # the attempt ended by itself and the job wants another (retries, a lost supervisor)
    FINISH = "finish"  # the attempt ended by itself and the job is done


class Outcome(StrEnum):
    """How a run ended.  `failed` is only for code that raised or a process that died."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


S, E = JobState, JobEvent

TRANSITIONS: dict[tuple[JobState, JobEvent], JobState] = {
    (S.QUEUED, E.ADMIT): S.ADMITTED,
    (S.QUEUED, E.CANCEL): S.ENDED,
    (S.QUEUED, E.GIVE_UP): S.ENDED,
    (S.ADMITTED, E.START): S.RUNNING,
    (S.ADMITTED, E.FAIL_LAUNCH): S.QUEUED,
    (S.ADMITTED, E.GIVE_UP): S.ENDED,
    (S.ADMITTED, E.EVICT): S.EVICTING,
    (S.ADMITTED, E.CANCEL): S.CANCELLING,
    (S.ADMITTED, E.REQUEUE): S.QUEUED,
    (S.ADMITTED, E.FINISH): S.ENDED,  # it started and ended between two looks
    (S.RUNNING, E.EVICT): S.EVICTING,
    (S.RUNNING, E.CANCEL): S.CANCELLING,
    (S.RUNNING, E.REQUEUE): S.QUEUED,
    (S.RUNNING, E.FINISH): S.ENDED,
    (S.EVICTING, E.RELEASE): S.QUEUED,  # only now is its quota free
    (S.EVICTING, E.CANCEL): S.CANCELLING,  # the later mark decides: it will not come back
    (S.EVICTING, E.FINISH): S.ENDED,  # it ended by itself before the stop reached it
    (S.CANCELLING, E.RELEASE): S.ENDED,
    (S.CANCELLING, E.FINISH): S.ENDED,  # it ended by itself before the cancel reached it
}

HOLDS_QUOTA = frozenset({S.ADMITTED, S.RUNNING, S.EVICTING, S.CANCELLING})
TERMINAL = frozenset(JobState) - {state for state, _ in TRANSITIONS}


def legal_events(state: JobState) -> tuple[JobEvent, ...]:
    """The events that `state` accepts, in the order of the table."""
    return tuple(event for (s, event) in TRANSITIONS if s is state)


def next_state(state: JobState, event: JobEvent) -> JobState:
    """The state that follows.  Raises IllegalTransition, naming what would be legal."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state=state, event=event, legal=legal_events(state)) from None
