"""What the end of an attempt means for its job: a pure rule, so that every case can be read and tested.

An attempt that a stop interrupted is followed by another, unless its job said no.  One that failed is retried while
the job has retries left.  A launch that failed backs off, and is given up after `MAX_LAUNCHES`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tenure.domain.attempt import AttemptState, Observation
from tenure.domain.job import GangPolicy, JobSpec
from tenure.domain.lifecycle import JobEvent, JobState, Outcome

__all__ = ["MAX_LAUNCHES", "Verdict", "launch_backoff_s", "verdict"]

MAX_LAUNCHES = 6
FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The step of the lifecycle, how the run ended, and how long to wait before the next try."""

    event: JobEvent
    outcome: Outcome
    reason: str
    message: str
    exit_code: int | None = None
    signal: int | None = None
    delay_s: float = 0.0
    launch_failed: bool = False
    used_retry: bool = False

    @property
    def final(self) -> bool:
        """The job has ended (and not this attempt alone)."""
        return self.event in (JobEvent.FINISH, JobEvent.GIVE_UP)


def launch_backoff_s(failures: int) -> float:
    """1, 2, 4 … seconds after the first, second, third failed launch; at most a minute."""
    return min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * float(2 ** (failures - 1)))


def verdict(
    state: JobState, spec: JobSpec, seen: Observation, *, launch_failures: int = 0, retries_used: int = 0
) -> Verdict:
    """`seen` is an end: `ended`, `lost` or `launch-failed`.  `state` holds quota."""
    if seen.state is AttemptState.LAUNCH_FAILED:
        return _launch_failed(state, seen, launch_failures + 1)
    outcome = seen.outcome or (Outcome.INTERRUPTED if seen.state is AttemptState.LOST else Outcome.FAILED)
    if state is JobState.CANCELLING:
        # It may have ended by itself before the cancel reached it; then that is the truth.
        if outcome in (Outcome.COMPLETED, Outcome.FAILED) and seen.reason != "TimeLimit":
            return _of(JobEvent.FINISH, outcome, seen)
        return _of(JobEvent.RELEASE, Outcome.CANCELLED, seen)
    match outcome:
        case Outcome.INTERRUPTED if spec.requeue:
            return _of(JobEvent.RELEASE if state is JobState.EVICTING else JobEvent.REQUEUE, outcome, seen)
        case Outcome.FAILED if _may_retry(state, spec, seen, retries_used):
            again = _of(JobEvent.REQUEUE, outcome, seen)
            return replace(again, used_retry=True, delay_s=launch_backoff_s(retries_used + 1))
        case _:
            return _of(JobEvent.FINISH, outcome, seen)


def _of(event: JobEvent, outcome: Outcome, seen: Observation) -> Verdict:
    return Verdict(
        event=event,
        outcome=outcome,
        reason=seen.reason,
        message=seen.message,
        exit_code=seen.exit_code,
        signal=seen.signal,
    )


def _may_retry(state: JobState, spec: JobSpec, seen: Observation, retries_used: int) -> bool:
    return (
        state in (JobState.ADMITTED, JobState.RUNNING)
        and spec.policy is GangPolicy.ALL
        and retries_used < spec.backoff_limit
        and seen.reason not in ("TimeLimit", "DeadlineExceeded")
    )


def _launch_failed(state: JobState, seen: Observation, failures: int) -> Verdict:
    match state:
        case JobState.CANCELLING:
            event, outcome = JobEvent.RELEASE, Outcome.CANCELLED
        case JobState.EVICTING:
            event, outcome = JobEvent.RELEASE, Outcome.INTERRUPTED
        case _:
            event = JobEvent.FAIL_LAUNCH if failures < MAX_LAUNCHES else JobEvent.GIVE_UP
            outcome = Outcome.FAILED
    return replace(
        _of(event, outcome, seen),
        reason=seen.reason or "LaunchError",
        exit_code=seen.exit_code or 127,
        launch_failed=True,
        delay_s=launch_backoff_s(failures) if event is JobEvent.FAIL_LAUNCH else 0.0,
    )
