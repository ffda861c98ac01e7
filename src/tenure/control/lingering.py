"""Writing down what an attempt has left on its cards: who is still there, or what is not back.

A stale word, about an attempt that is not the current one any more, writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.domain.events import Event, EventKind
from tenure.domain.ids import RunId, split_run_id
from tenure.domain.lifecycle import HOLDS_QUOTA

from .live import Live
from .vacating import Lingers, Vacated

if TYPE_CHECKING:
    from .conductor import Conductor

__all__ = ["write_lingering", "write_remark"]


def write_lingering(conductor: Conductor, told: Lingers) -> None:
    """Its processes have left, says the backend; its card says otherwise.  Whoever asks `why` hears who."""
    live = _current(conductor, told.run)
    if live is None:
        return
    listed = [
        {"pid": h.pid, "command": h.owner.command, "card": h.card, "bytes": h.memory, "user": h.owner.user}
        for h in told.who
    ]
    kind = EventKind.JOB_SURVIVORS if told.who else EventKind.CARD_NOT_EMPTY
    with conductor.ledger.transaction(durable=False) as tx:
        row = tx.note(
            live.id,
            kind,
            conductor.clock.now(),
            message=told.message,
            changes={"message": told.message},
            data={"survivors": listed} if listed else {},
        )
    live.saw(row)


def write_remark(conductor: Conductor, told: Vacated) -> None:
    """Its quota is given away although its card is not as it was: what is still used, and by whom the driver says."""
    live = _current(conductor, told.seen.run_id)
    if live is None or not told.remark:
        return
    cards = [
        {
            "card": left.card,
            "used": left.used,
            "unexplained": left.unexplained,
            "error": left.error,
            "others": [{"pid": h.pid, "command": h.owner.command, "bytes": h.memory} for h in left.others],
        }
        for left in told.left
    ]
    message = f"attempt {live.attempts} has left, and its quota is given away: {told.remark}"
    with conductor.ledger.transaction(durable=False) as tx:
        tx.event(
            Event(
                kind=EventKind.CARD_NOT_EMPTY,
                at=conductor.clock.now(),
                job_id=live.id,
                run_id=live.current_run,
                message=message,
                data={"cards": cards},
            )
        )


def _current(conductor: Conductor, run: RunId) -> Live | None:
    job, number = split_run_id(run)
    live = conductor.live.get(job)
    return live if live is not None and live.attempts == number and live.state in HOLDS_QUOTA else None
