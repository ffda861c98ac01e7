"""Admission checks: what must be ready, besides quota, before a workload that holds quota may start.

Kueue's state machine.  Each check of the cluster queue that concerns the assigned flavors starts as Pending; a workload
starts once all are Ready, is queued again when one says Retry, and is deactivated when one says Rejected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum, auto

from tenure.domain.policy import Policy
from tenure.domain.workload import Admission

__all__ = ["Answer", "CheckState", "Checks", "Step"]


class CheckState(StrEnum):
    """Kueue's words."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


class Step(StrEnum):
    """What follows from all checks together."""

    WAIT = auto()
    ADMIT = auto()
    RETRY = auto()
    DEACTIVATE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a check's controller says.  `requeue_after_s` counts with Retry: seconds before the next try."""

    state: CheckState = CheckState.PENDING
    message: str = ""
    requeue_after_s: float = 0.0


@dataclass(slots=True)
class Checks:
    """The checks of one workload for one reservation: by name, with the controller that answers for each."""

    controllers: dict[str, str]
    answers: dict[str, Answer] = field(default_factory=dict)

    @classmethod
    def of(cls, policy: Policy, admission: Admission) -> Checks:
        """Those of its cluster queue that are bound to no flavor, or to one that it was given."""
        queue = policy.cluster_queues.get(admission.cluster_queue)
        given = {flavor for part in admission.assignments for flavor in part.flavors.values()}
        names = [
            ref.name
            for ref in (queue.admission_checks if queue is not None else ())
            if not ref.on_flavors or given.intersection(ref.on_flavors)
        ]
        controllers = {name: policy.admission_checks.get(name, "") for name in names}
        return cls(controllers, {name: Answer() for name in names})

    def told(self, name: str, answer: Answer) -> None:
        """The latest word counts, until the workload starts or leaves."""
        if name in self.controllers:
            self.answers[name] = answer

    @property
    def step(self) -> Step:
        """Kueue's precedence: Rejected before Retry, and both before anything that is still pending."""
        states = {answer.state for answer in self.answers.values()}
        if CheckState.REJECTED in states:
            return Step.DEACTIVATE
        if CheckState.RETRY in states:
            return Step.RETRY
        return Step.WAIT if CheckState.PENDING in states else Step.ADMIT

    def having(self, state: CheckState) -> list[str]:
        return sorted(name for name, answer in self.answers.items() if answer.state is state)

    @property
    def requeue_after_s(self) -> float:
        """The longest that any of those who said Retry asks for."""
        return max((a.requeue_after_s for a in self.answers.values() if a.state is CheckState.RETRY), default=0.0)

    def __str__(self) -> str:
        """Every check that is not ready, with what it says."""
        left = sorted((name, a) for name, a in self.answers.items() if a.state is not CheckState.READY)
        return "; ".join(f"{name} is {a.state}" + (f": {a.message}" if a.message else "") for name, a in left)
