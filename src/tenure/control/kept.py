"""One model as the platform keeps it: what was declared, what its job was last seen doing, and who asked when.

Values only.  Who may change them is said in `model_life`; everybody else reads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tenure.domain.ids import Instant, JobId, RunId
from tenure.domain.model import Model, ModelState
from tenure.telemetry.members import Member

from .draining import Drain
from .probing import Probe

__all__ = ["Kept"]


@dataclass(slots=True)
class Kept:
    """One model as it stands.  Times named `_us` are of the steady clock, the others are stamps."""

    model: Model
    state: ModelState = ModelState.ASLEEP
    reason: str = ""
    message: str = ""
    job: JobId | None = None
    port: int | None = None
    run: RunId | None = None  # the run that is starting or up
    started_us: int = 0  # when that run was first seen
    ready_run: RunId | None = None
    ready_us: int = 0
    asked_us: int = 0  # the last inference that began or ended
    last_inference_at: Instant | None = None
    keep_alive_s: float | None = None  # what the last caller who said so asked to keep it for; -1: for ever
    in_flight: int = 0
    held: int = 0
    reported_us: int = 0
    wakes: int = 0
    failures: int = 0
    not_before_us: int = 0
    leaving_us: int = 0  # since when it is to sleep; 0 = it is not
    drain: Drain | None = None  # of the run that is leaving
    adopted: RunId | None = None  # a run that an earlier daemon has seen up: who was sent to it is not known
    cancelled: bool = False  # the job's end was asked for
    blame: tuple[str, str] | None = None  # why that end is a failure
    by_hand: bool = False  # a person asked for it, and not a request
    wanted: str = ""  # somebody asked while it was leaving
    silent_us: int = 0  # since when its server no longer listens
    server: int | None = None  # the pid that listened when it became ready
    named: tuple[Member, ...] = ()  # who of `named_of` was there when last looked for
    named_of: RunId | None = None
    named_us: int = 0
    blocked_by: tuple[str, ...] = ()
    placeable: bool = True
    looked_us: int = 0
    probe: Probe | None = None
    last_wake: dict[str, Any] = field(default_factory=dict)

    def gone(self) -> None:
        """Nothing of a job is left."""
        self.unprobed()
        self.job = self.port = self.run = self.ready_run = None
        self.leaving_us = self.silent_us = self.ready_us = self.in_flight = 0
        self.drain = self.adopted = self.named_of = self.server = None
        self.cancelled, self.blame, self.blocked_by, self.placeable = False, None, (), True
        self.keep_alive_s, self.by_hand = None, False

    def unprobed(self) -> None:
        """Whether it is ready is not asked any more."""
        if self.probe is not None:
            self.probe.cancel()
            self.probe = None

    @property
    def idle_after_s(self) -> float:
        """What was declared, or what a caller asked for since it came up."""
        if self.keep_alive_s is None:
            return self.model.idle_after_s
        return self.keep_alive_s if self.keep_alive_s >= 0 else math.inf

    def sleeps_us(self) -> int | None:
        """When it is put to sleep if nobody asks, in steady time; None where no clock runs."""
        if self.model.resident or self.state is not ModelState.READY or self.in_flight or self.leaving_us:
            return None
        if math.isinf(self.idle_after_s):
            return None
        return max(self.ready_us, self.asked_us) + int(self.idle_after_s * 1e6)
