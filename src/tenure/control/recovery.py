"""After a start, and after a step that failed: everything is rebuilt from the ledger and the backend's word.

What a crash may have cut off between a commit and the act that it called for is done again; acting is idempotent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenure.domain.attempt import AttemptState, Observation
from tenure.domain.ids import JobId, RunId
from tenure.domain.lifecycle import HOLDS_QUOTA, JobState

from . import admitting
from .live import Live

if TYPE_CHECKING:
    from .conductor import Conductor

__all__ = ["rebuild"]

ALIVE = frozenset({AttemptState.RUNNING, AttemptState.STOPPING, AttemptState.STARTING})


def rebuild(conductor: Conductor) -> list[Observation]:
    """The engine and the live jobs as the ledger has them; what the backend knows of their attempts is returned."""
    queued: list[Live] = []
    attempts: list[tuple[RunId, str]] = []
    for row in conductor.ledger.live_jobs():
        live = conductor.adopt(Live.of(row, conductor.specs.of(row)))
        if row.state is JobState.QUEUED:
            queued.append(live)
            continue
        live.in_engine = True
        assert live.admission is not None, f"{row.id} is {row.state} without a reservation"
        conductor.engine.restore(
            live.workload(conductor.cards),
            live.admission,
            reserved_at=row.admitted_at or row.submitted_at,
            evicting=row.state in (JobState.EVICTING, JobState.CANCELLING),
        )
        conductor.gates.check(live, now=conductor.clock.steady())
        attempts.append((live.current_run, str(conductor.driver.run_dir(live.current_run))))
    _remember_order(conductor, queued)
    for live in queued:
        conductor.consider(live)
    seen = conductor.backend.observe(attempts)
    for live in list(conductor.live.values()):
        if live.state in HOLDS_QUOTA:
            _resume(conductor, live, seen.get(live.current_run))
    return [o for o in seen.values() if o.state is not AttemptState.ABSENT]


def _remember_order(conductor: Conductor, queued: Sequence[Live]) -> None:
    """Whoever was sent to the end of the line stays there."""
    tried = [live for live in queued if live.attempts]
    for job, attempts in conductor.ledger.attempts_of([live.id for live in tried]).items():
        last = attempts[-1]
        if admitting.goes_to_the_end(conductor.engine.policy, last.evicted_reason):
            conductor.live[JobId(job)].ordered_at = last.evicted_at


def _resume(conductor: Conductor, live: Live, observation: Observation | None) -> None:
    """Do again what a crash may have cut off: starting an admitted job, stopping an evicted one."""
    absent = observation is None or observation.state is AttemptState.ABSENT
    match live.state:
        case JobState.ADMITTED if absent:
            conductor.admitted(live)
        case JobState.ADMITTED:
            conductor.readiness.began(conductor, live, at=conductor.clock.steady())
        case JobState.EVICTING | JobState.CANCELLING if absent:
            conductor.observed_absent(live)
        case JobState.EVICTING | JobState.CANCELLING:
            conductor.driver.stop_soon(live)
        case JobState.RUNNING if observation is not None and observation.state in ALIVE:
            conductor.driver.adopted(live)
        case _:
            pass  # what it became is told by the observation itself
