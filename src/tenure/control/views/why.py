"""Why a job is where it is: every blocker while it waits, and its whole story for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.domain.errors import InvalidRequest
from tenure.domain.events import EventKind
from tenure.domain.explanation import Blocker
from tenure.domain.ids import JobId, WorkloadKey
from tenure.domain.lifecycle import JobState
from tenure.domain.reasons import PendingReason
from tenure.ledger import JobRow

from .. import window_gate
from ..clock import wire
from ..live import Live
from ..lookup import rows_of
from ..model_jobs import in_the_place, model_of
from ..model_waiting import HOPELESS
from .events import event_json
from .expected import expected_start
from .story import phases
from .windows import holders_of_window

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["why"]

STORY = 200


def why(platform: Platform, id: str, *, forecast: bool = True) -> dict[str, Any]:
    """Raises NotFound; an array is asked about task by task.  `forecast` False leaves out the expected start."""
    rows, is_array = rows_of(platform.ledger, id)
    if is_array:
        waiting = next((row for row in rows if row.state is JobState.QUEUED), rows[0])
        raise InvalidRequest(f"job {id} is an array; ask about one task, such as {waiting.id}", field="id")
    row = rows[0]
    answer: dict[str, Any] = {
        "id": row.id,
        "name": row.name,
        "state": str(row.state),
        "reason": row.reason,
        "message": row.message,
        "position": None,
        "blockers": [],
        "expected_start": None,
        "expected_start_reason": None,
        "counterfactuals": [],
    }
    if row.state is JobState.QUEUED:
        _waiting(platform, row, answer)
        if forecast:
            answer["expected_start"], reason = expected_start(platform, row.id)
            answer["expected_start_reason"] = reason or None
    elif row.state is JobState.ADMITTED:
        with platform.conductor.lock:
            unready = platform.conductor.inspector.unready(row.id)
        answer["blockers"] = [_unready(name, str(told.state), told.message) for name, told in unready.items()]
    if not answer["message"]:
        answer["message"] = _standing(row)
    answer["phases"] = phases(platform.ledger, row, platform.settings.runs_dir, now=platform.clock.now())
    answer["history"] = _history(platform, row)
    return answer


def _waiting(platform: Platform, row: JobRow, answer: dict[str, Any]) -> None:
    now = platform.clock.steady()
    with platform.conductor.lock:
        live = platform.conductor.live.get(row.id)
        if live is None or not live.in_engine:
            answer["message"] = row.message or _unsaid(row)
            answer["blockers"] = [_gate(row) | {"message": answer["message"]}]
            if live is not None and row.reason == PendingReason.WAITING_FOR_WINDOW:
                shut, _ = window_gate.verdict(platform.conductor, live)
                answer["message"] = shut.message if shut is not None else row.message
                now_held = {"message": answer["message"], "held_by": holders_of_window(platform, row)}
                answer["blockers"] = [_gate(row) | now_held]
                own = platform.conductor.windows.of_job(live.id)
                kept = platform.conductor.windows.obstacle(own) if own is not None else None
                if kept is not None:
                    answer["message"] += f": {kept.message}" if kept.message not in answer["message"] else ""
                    answer["blockers"] += [_blocker(platform, blocker) for blocker in kept.blockers]
            return
        explanation = platform.engine.explain(WorkloadKey(row.id), now)
        answer["position"] = platform.engine.position(WorkloadKey(row.id))
        answer["reason"], answer["message"] = str(explanation.reason), explanation.message
        answer["blockers"] = [_blocker(platform, blocker) for blocker in explanation.blockers]
        mine = model_of(live)
        if mine is not None and answer["reason"] not in HOPELESS:
            keys = (holder.key for blocker in explanation.blockers for holder in blocker.held_by)
            others = [one for key in keys if (one := platform.conductor.live.get(JobId(key)))]
            answer["message"] += in_the_place(mine, others)
        if live.avoid:
            answer["blockers"] += [_claimed(holder) for holder in holders_of_window(platform, row)]
        answer["counterfactuals"] = [{"change": c.change, "effect": c.effect} for c in explanation.counterfactuals]


def _blocker(platform: Platform, blocker: Blocker) -> dict[str, Any]:
    return {
        "kind": blocker.kind,
        "resource": blocker.resource,
        "flavor": blocker.flavor,
        "asked": blocker.asked,
        "free": blocker.free,
        "message": blocker.message,
        "held_by": [
            {
                **_who(platform.conductor.live.get(JobId(holder.key)), str(holder.key)),
                "amount": holder.amount,
                "preemptible": holder.preemptible,
                "because": holder.because,
            }
            for holder in blocker.held_by
        ],
    }


def _unready(name: str, state: str, message: str) -> dict[str, Any]:
    """Quota is held, and an admission check stands between it and the start."""
    said = f"admission check {name} is {state}" + (f": {message}" if message else "")
    return {
        "kind": "check",
        "resource": None,
        "flavor": None,
        "asked": None,
        "free": None,
        "message": said,
        "held_by": [],
    }


def _gate(row: JobRow) -> dict[str, Any]:
    """Kept outside the engine: a hold, a time, another job, an array's limit, a backoff."""
    return {
        "kind": row.reason,
        "resource": None,
        "flavor": None,
        "asked": None,
        "free": None,
        "message": row.message,
        "held_by": [],
    }


def _unsaid(row: JobRow) -> str:
    """A hold that was asked for with the submission is no news, and nobody wrote it down."""
    if row.reason == PendingReason.SUSPENDED:
        return f"held; `tenure release {row.id}` lets it be considered"
    return "not in line yet: it came this moment"


def _claimed(holder: dict[str, Any]) -> dict[str, Any]:
    """A card that it may not be placed on, while it waits for another."""
    about = {"kind": "window", "resource": None, "flavor": None, "asked": None, "free": None}
    return {**about, "message": f"window {holder['id']} {holder['because']}", "held_by": [holder]}


def _who(live: Live | None, id: str) -> dict[str, Any]:
    return {
        "id": id,
        "name": live.spec.name if live else "",
        "owner": live.spec.owner if live else "",
        "priority_class": live.priority_class if live else None,
        "since": wire(live.started_at) if live else None,
    }


def _standing(row: JobRow) -> str:
    match row.state:
        case JobState.RUNNING:
            return f"running as attempt {row.attempts} since {wire(row.started_at)}"
        case JobState.ADMITTED:
            return "quota is reserved; its first process is being started"
        case JobState.ENDED:
            return f"ended {row.outcome} at {wire(row.ended_at)}"
        case _:
            return str(row.state)


def _history(platform: Platform, row: JobRow) -> list[dict[str, Any]]:
    """What happened lately, oldest first; changes of reason are kept, the fields that they set are left out."""
    events = platform.ledger.events(job_id=row.id, limit=STORY, newest=True)[::-1]
    shown = []
    for event in events:
        if event.kind in (EventKind.ATTEMPT_CREATED, EventKind.ATTEMPT_STOPPING):
            continue
        line = event_json(event)
        line.pop("changes")
        shown.append(line)
    return shown
