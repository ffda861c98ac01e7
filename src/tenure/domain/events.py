"""The diary: what happened, in the words that pages, scripts and `why` use.

An event carries the fields that it changed, so that folding a job's events gives its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .ids import Instant, JobId, RunId

__all__ = ["Event", "EventKind"]


class EventKind(StrEnum):
    # jobs
    JOB_SUBMITTED = "JobSubmitted"
    JOB_PENDING = "JobPending"  # the reason for waiting changed
    JOB_HELD = "JobHeld"
    JOB_RELEASED = "JobReleased"
    JOB_ADMITTED = "JobAdmitted"
    JOB_STARTED = "JobStarted"
    JOB_PREEMPTED = "JobPreempted"  # asked to stop for another; who, by which rule
    JOB_EVICTED = "JobEvicted"  # asked to stop for any other reason
    JOB_SHRUNK = "JobShrunk"
    JOB_REQUEUED = "JobRequeued"
    JOB_CANCEL_REQUESTED = "JobCancelRequested"
    JOB_LAUNCH_FAILED = "JobLaunchFailed"
    JOB_ENDED = "JobEnded"
    JOB_CHECKED = "JobChecked"  # its admission checks, quota being held: what they say
    JOB_SURVIVORS = "JobSurvivors"  # asked to stop and still there: who
    CARD_NOT_EMPTY = "CardNotEmpty"  # its processes have left, and memory of its card has not come back yet, or never
    JOB_NOTED = "JobNoted"  # somebody, perhaps the job itself, has something to say about it
    # attempts
    ATTEMPT_CREATED = "AttemptCreated"
    ATTEMPT_STARTED = "AttemptStarted"
    ATTEMPT_STOPPING = "AttemptStopping"
    ATTEMPT_ENDED = "AttemptEnded"
    ATTEMPT_ADOPTED = "AttemptAdopted"
    CODE_CHANGED = "CodeChanged"  # the working tree at start differs from the one at submit
    # runs
    RUN_REAPED = "RunReaped"
    RUN_HEALED = "RunHealed"
    # windows: a claim of a whole card
    WINDOW_CLAIMED = "WindowClaimed"
    WINDOW_DUE = "WindowDue"  # its time has come, and it waits for its turn or for the card
    WINDOW_OPENED = "WindowOpened"
    WINDOW_CHANGED = "WindowChanged"
    WINDOW_ENDED = "WindowEnded"
    # models
    MODEL_WOKEN = "ModelWoken"  # asked for, by whom and why
    MODEL_CHANGED = "ModelChanged"  # its state is another one
    MODEL_ANSWERED = "ModelAnswered"  # the first token after a wake
    MODEL_HELD = "ModelHeld"  # a request waits for it
    # access tokens
    TOKEN_CREATED = "TokenCreated"  # by whom, and what it may do
    TOKEN_CHANGED = "TokenChanged"
    TOKEN_REVOKED = "TokenRevoked"
    # the house
    LIVELOCK = "Livelock"  # two jobs kept taking the place from each other; the second keeps it
    POLICY_LOADED = "PolicyLoaded"
    CARDS_CHANGED = "CardsChanged"
    DAEMON_STARTED = "DaemonStarted"
    DAEMON_STOPPED = "DaemonStopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the diary.  `changes` are the row fields it set; `data` is what else people will ask."""

    kind: EventKind
    at: Instant
    id: int = 0
    job_id: JobId | None = None
    run_id: RunId | None = None
    message: str = ""
    changes: Mapping[str, object] = field(default_factory=dict)
    data: Mapping[str, object] = field(default_factory=dict)
