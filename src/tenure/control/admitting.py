"""Writing down what the engine decided.

The plan was made from what the loop last saw.  Each job's change names that revision; where a verb was faster, that one
change is refused, the engine forgets its decision, and the job is read again.  Everything else of the plan stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tenure.domain.attempt import AttemptState
from tenure.domain.events import Event, EventKind
from tenure.domain.ids import Instant, JobId, WorkloadKey, run_id
from tenure.domain.lifecycle import JobEvent, JobState
from tenure.domain.plan import Admit, Evict, Livelock, Pend, Plan, Preempt, Shrink
from tenure.domain.policy import Policy
from tenure.domain.reasons import EvictionReason
from tenure.ledger import AttemptChange, Change, JobRow, NewAttempt, Transaction

from .live import Live
from .workloads import admission_to_json

if TYPE_CHECKING:
    from .conductor import Conductor

__all__ = ["evict", "goes_to_the_end", "pending_change", "write"]


def write(conductor: Conductor, plans: Sequence[Plan]) -> None:
    """One transaction for all cycles of a step, in the order in which they were decided."""
    at = conductor.clock.now()
    stale: list[JobId] = []
    admits: list[Admit] = []
    pends: dict[WorkloadKey, Pend] = {}
    with conductor.ledger.transaction(durable=False) as tx:
        for plan in plans:
            admits += plan.admits
            pends.update((pend.key, pend) for pend in plan.pends)
            if plan.preempts or plan.shrinks or plan.evicts:
                stale += _admit(conductor, tx, admits, at)
                admits = []
                stale += _take_back(conductor, tx, plan, at)
        stale += _admit(conductor, tx, admits, at)
        for plan in plans:
            for found in plan.livelocks:
                _livelock(conductor, tx, found, at)
        _pend(conductor, tx, pends.values(), at)
    for job in stale:
        conductor.engine.remove(WorkloadKey(job))
        if job in conductor.live:
            conductor.live[job].in_engine = False
        conductor.sync(job)


def _admit(conductor: Conductor, tx: Transaction, admits: Sequence[Admit], at: Instant) -> list[JobId]:
    changes: list[Change] = []
    for admit in admits:
        live = conductor.live[JobId(admit.key)]
        number = live.attempts + 1
        changes.append(
            Change(
                job_id=live.id,
                event=JobEvent.ADMIT,
                kind=EventKind.JOB_ADMITTED,
                at=at,
                expect_state=JobState.QUEUED,
                expect_revision=live.revision,
                message=f"Quota reserved in ClusterQueue {admit.admission.cluster_queue}",
                fields={
                    "reason": "",
                    "message": "",
                    "admitted_at": at,
                    "cluster_queue": admit.admission.cluster_queue,
                    "reservation": admission_to_json(admit.admission),
                    "attempts": number,
                    "run_id": run_id(live.id, number),
                    "not_before": None,
                },
            )
        )
    stale: list[JobId] = []
    attempts: list[NewAttempt] = []
    for admit, row in zip(admits, tx.move_many(changes) if changes else (), strict=True):
        live = conductor.live[JobId(admit.key)]
        if not isinstance(row, JobRow):
            stale.append(live.id)
            continue
        before = live.attempts
        live.saw(row)
        live.admission = admit.admission
        live.launched = False
        attempts.append(
            NewAttempt(
                run_id=live.current_run,
                job_id=live.id,
                number=live.attempts,
                backend=conductor.backend.name,
                retry_of=run_id(live.id, before) if before else conductor.driver.last_run_of(live.retry_of),
                placement=[
                    {"card": p.card, "ranks": list(p.ranks), "shares": p.shares, "memory": p.memory}
                    for p in admit.admission.placements
                ],
            )
        )
        conductor.admitted(live)
    if attempts:
        tx.add_attempts(attempts, at)
    return stale


def _take_back(conductor: Conductor, tx: Transaction, plan: Plan, at: Instant) -> list[JobId]:
    """Preemptions, evictions and shrinking: who, by which rule, for whom, and when stand beside each, for ever."""
    stale: list[JobId] = []
    for preempt in plan.preempts:
        stale += _evict(conductor, tx, preempt, at)
    for eviction in plan.evicts:
        stale += _evict(conductor, tx, eviction, at)
    for shrink in plan.shrinks:
        _shrink(conductor, tx, shrink, at)
    return stale


def evict(
    conductor: Conductor, eviction: Evict, *, not_before: Instant | None = None, deactivate: bool = False
) -> None:
    """An eviction that no cycle decided (the platform stops, a card fails, a check says no).

    Queued again not before `not_before`, in steady time; or, with `deactivate`, kept out until a person releases it.
    """
    fields: dict[str, object] = {}
    if not_before is not None:
        fields["not_before"] = not_before
    if deactivate:
        fields["held"] = True
    with conductor.ledger.transaction(durable=False) as tx:
        at = conductor.clock.now()
        _evict(conductor, tx, eviction, at, fields)
    if goes_to_the_end(conductor.engine.policy, eviction.reason):
        conductor.live[JobId(eviction.key)].ordered_at = at
    conductor.engine.evict(eviction.key)


def goes_to_the_end(policy: Policy, reason: str | None) -> bool:
    """Kueue's `requeuingStrategy.timestamp`: one that was too late is ordered by its eviction; so is one whose check failed."""
    rule = policy.wait_for_pods_ready
    late = rule is not None and rule.requeuing_timestamp == "Eviction"
    return reason == EvictionReason.ADMISSION_CHECK or (late and reason == EvictionReason.PODS_READY_TIMEOUT)


def _evict(
    conductor: Conductor,
    tx: Transaction,
    decided: Preempt | Evict,
    at: Instant,
    fields: Mapping[str, object] | None = None,
) -> list[JobId]:
    match decided:
        case Preempt():
            key, by, kind = decided.victim, str(decided.preemptor), EventKind.JOB_PREEMPTED
            reason = EvictionReason.PREEMPTED
        case Evict():
            key, by, kind, reason = decided.key, "", EventKind.JOB_EVICTED, decided.reason
    live = conductor.live[JobId(key)]
    if live.state not in (JobState.ADMITTED, JobState.RUNNING):
        return []  # it is leaving already; its quota will be free when it has
    (row,) = tx.move_many(
        [
            Change(
                job_id=live.id,
                event=JobEvent.EVICT,
                kind=kind,
                at=at,
                expect_state=live.state,
                expect_attempts=live.attempts,
                message=decided.message,
                fields={"reason": str(reason), "message": decided.message, **(fields or {})},
                data={"by": by, "rule": str(decided.reason), "attempt": live.attempts},
            )
        ]
    )
    if not isinstance(row, JobRow):
        return [live.id]
    launched = live.state is JobState.RUNNING
    live.saw(row)
    tx.update_attempts(
        [
            AttemptChange(
                run_id=live.current_run,
                kind=EventKind.ATTEMPT_STOPPING,
                at=at,
                expect_state=(AttemptState.STARTING, AttemptState.RUNNING),
                fields={
                    **({"state": AttemptState.STOPPING} if launched else {}),
                    "evicted_reason": str(decided.reason),
                    "evicted_message": decided.message,
                    "evicted_by": by or None,
                    "evicted_at": at,
                },
                message=decided.message,
            )
        ]
    )
    conductor.driver.stop_soon(live, by=by, reason=str(decided.reason), message=decided.message)
    return []


def _shrink(conductor: Conductor, tx: Transaction, shrink: Shrink, at: Instant) -> None:
    live = conductor.live[JobId(shrink.victim)]
    if live.state not in (JobState.ADMITTED, JobState.RUNNING):
        return
    tx.note(
        live.id,
        EventKind.JOB_SHRUNK,
        at,
        message=shrink.message,
        data={"by": str(shrink.preemptor), "rule": str(shrink.reason), "processes": shrink.count},
    )
    conductor.driver.shrink_soon(live, shrink)


def _livelock(conductor: Conductor, tx: Transaction, found: Livelock, at: Instant) -> None:
    """A fact of the house, told in the story of the one who keeps the place."""
    lives = {key: conductor.live.get(JobId(key)) for key in (found.keeper, found.other)}
    names = {key: live.spec.name for key, live in lives.items() if live is not None}
    tx.event(
        Event(
            kind=EventKind.LIVELOCK,
            at=at,
            job_id=JobId(found.keeper),
            message=f"job {found.keeper} keeps its place from job {found.other}: {found.message}",
            data={
                "keeper": found.keeper,
                "keeper_name": names.get(found.keeper, ""),
                "other": found.other,
                "other_name": names.get(found.other, ""),
                "takes": found.takes,
                "within_s": found.within_us / 1e6,
            },
        )
    )


def _pend(conductor: Conductor, tx: Transaction, pends: Iterable[Pend], at: Instant) -> None:
    """The diary hears when the reason changes; the latest message is asked of the engine itself."""
    changes: list[Change] = []
    for pend in pends:
        live = conductor.live.get(JobId(pend.key))
        if live is not None and live.state is JobState.QUEUED and live.reason != pend.reason:
            changes.append(pending_change(live, str(pend.reason), pend.message, at))
    if changes:
        for change, row in zip(changes, tx.move_many(changes), strict=True):
            if isinstance(row, JobRow):
                conductor.live[change.job_id].saw(row)


def pending_change(live: Live, reason: str, message: str, at: Instant) -> Change:
    """A job that waits, and why from now on; refused where its row has changed since it was last seen."""
    return Change(
        job_id=live.id,
        event=None,
        kind=EventKind.JOB_PENDING,
        at=at,
        expect_state=JobState.QUEUED,
        expect_revision=live.revision,
        message=message,
        fields={"reason": reason, "message": message},
    )
