"""Asking those who answer for admission checks, and carrying out what follows.

Controllers live in this process.  `tenure.dev/card-healthy` is answered from the watch over the cards; a check whose
controller does not run here stays Pending and says so.  Nothing is kept: after a restart every check is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tenure.domain.errors import StaleWrite
from tenure.domain.events import EventKind
from tenure.domain.ids import CardId, Instant, JobId, WorkloadKey
from tenure.domain.lifecycle import JobState
from tenure.domain.plan import Evict
from tenure.domain.reasons import EvictionReason, PendingReason
from tenure.engine.checks import Answer, Checks, CheckState, Step

from . import admitting
from .live import Live
from .watch import Reading

if TYPE_CHECKING:
    from .conductor import Conductor

__all__ = ["CARD_HEALTHY", "Inspector", "card_healthy"]

CARD_HEALTHY = "tenure.dev/card-healthy"
RETRY_S = 30.0

Controller = Callable[[Live], Answer]


def card_healthy(reading: Callable[[CardId], Reading]) -> Controller:
    """Ready once every card that the job was given answers; Retry, somewhere else perhaps, where one does not."""

    def answer(live: Live) -> Answer:
        cards = sorted({place.card for place in live.admission.placements}) if live.admission else []
        readings = {card: reading(card) for card in cards}
        ill = [f"{card}: {r.message}" for card, r in readings.items() if r.healthy is False]
        if ill:
            return Answer(state=CheckState.RETRY, message="; ".join(ill), requeue_after_s=RETRY_S)
        unknown = [f"{card}: {r.message}" for card, r in readings.items() if r.healthy is None]
        if unknown:
            return Answer(message="; ".join(unknown))
        return Answer(state=CheckState.READY)

    return answer


class Inspector:
    """Those that hold quota and wait for their checks.  Used by the loop's thread alone."""

    def __init__(self, controllers: Mapping[str, Controller]) -> None:
        self._controllers = dict(controllers)
        self._waiting: dict[JobId, tuple[int, Checks]] = {}
        self._told: dict[JobId, str] = {}

    def register(self, name: str, controller: Controller) -> None:
        """Somebody who answers for all checks of this controller name from now on."""
        self._controllers[name] = controller

    def clear(self) -> None:
        self._waiting.clear()
        self._told.clear()

    def concerns(self, conductor: Conductor, live: Live) -> bool:
        """True where checks stand before the start of a job that was just admitted; `look` sees to it."""
        assert live.admission is not None
        checks = Checks.of(conductor.engine.policy, live.admission)
        if not checks.controllers:
            return False
        self._waiting[live.id] = (live.attempts, checks)
        return True

    def unready(self, job: JobId) -> dict[str, Answer]:
        """What a job that holds quota still waits for, by the check's name."""
        _, checks = self._waiting.get(job, (0, None))
        if checks is None:
            return {}
        return {name: a for name, a in checks.answers.items() if a.state is not CheckState.READY}

    def look(self, conductor: Conductor) -> None:
        """Ask once more about everybody who waits, and start, evict or deactivate."""
        for job, (attempt, before) in list(self._waiting.items()):
            live = conductor.live.get(job)
            if live is None or live.state is not JobState.ADMITTED or live.attempts != attempt:
                self._forget(job)  # cancelled, evicted or gone meanwhile
                continue
            assert live.admission is not None
            fresh = Checks.of(conductor.engine.policy, live.admission)
            checks = before if fresh.controllers == before.controllers else fresh  # another policy: what it asks counts
            self._waiting[job] = (attempt, checks)
            for name, controller in checks.controllers.items():
                checks.told(name, self._ask(controller, live))
            self._carry_out(conductor, live, checks)

    def _ask(self, controller: str, live: Live) -> Answer:
        answer = self._controllers.get(controller)
        if answer is None:
            known = ", ".join(sorted(self._controllers))
            return Answer(message=f"its controller {controller!r} does not run here; this platform answers for {known}")
        return answer(live)

    def _carry_out(self, conductor: Conductor, live: Live, checks: Checks) -> None:
        match checks.step:
            case Step.WAIT:
                self._say(conductor, live, checks, PendingReason.UNSATISFIED_CHECKS, f"quota is held; {checks}")
            case Step.ADMIT:
                self._forget(live.id)
                if self._say(conductor, live, checks, "", "The workload is admitted"):
                    conductor.begin(live)
            case Step.RETRY:
                self._forget(live.id)
                after = Instant(conductor.clock.steady() + int(checks.requeue_after_s * 1e6))
                message = f"At least one admission check is false: {checks}"
                key = WorkloadKey(live.id)
                evict = Evict(key=key, reason=EvictionReason.ADMISSION_CHECK, message=message)
                admitting.evict(conductor, evict, not_before=after)
            case Step.DEACTIVATE:
                self._forget(live.id)
                rejected = " ".join(checks.having(CheckState.REJECTED))
                message = (
                    f"The workload is deactivated due to Admission check(s): [{rejected}], were rejected: {checks}; "
                    f"`tenure release {live.id}` lets it try again"
                )
                key = WorkloadKey(live.id)
                evict = Evict(key=key, reason=EvictionReason.DEACTIVATED_ADMISSION_CHECK, message=message)
                admitting.evict(conductor, evict, deactivate=True)

    def _say(self, conductor: Conductor, live: Live, checks: Checks, reason: str, message: str) -> bool:
        """Once, in the row and in the diary.  False where a verb was faster: it will be heard of."""
        if self._told.get(live.id) == message:
            return True
        try:
            with conductor.ledger.transaction(durable=False) as tx:
                row = tx.note(
                    live.id,
                    EventKind.JOB_CHECKED,
                    conductor.clock.now(),
                    message=message,
                    changes={"reason": str(reason), "message": message if reason else ""},
                    data={"checks": {name: str(answer.state) for name, answer in checks.answers.items()}},
                    expect_state=JobState.ADMITTED,
                    expect_revision=live.revision,
                )
        except StaleWrite:
            return False
        live.saw(row)
        if reason:
            self._told[live.id] = message
        return True

    def _forget(self, job: JobId) -> None:
        self._waiting.pop(job, None)
        self._told.pop(job, None)
