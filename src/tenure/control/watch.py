"""Watching the cards' health: a card that the driver reports as gone or faulty is told of once.

Two signs.  An Xid that means the card itself is at fault, at once.  A card that does not answer while the library does,
once that has lasted; a library that is gone says nothing about any card (a driver is being reloaded).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tenure.domain.ids import CardId
from tenure.telemetry.monitor import CardSample, XidEvent

__all__ = ["FATAL_XIDS", "CardWatch", "Reading"]

log = logging.getLogger(__name__)

FATAL_XIDS = frozenset({48, 62, 64, 79, 95, 119, 120, 140})
"""The card is at fault, and not a program on it: uncorrectable memory errors that were not contained to one process (48,
95, 140), a bad row that could not be retired (64), a controller or firmware that hangs (62, 119, 120), off the bus (79)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the last look said.  `healthy` None: nobody could look."""

    healthy: bool | None
    message: str = ""


class CardWatch:
    """Calls `failed(card, why)` once a card has failed, and `looked()` after a look that changed somebody's health.

    Where `failed` raises (the ledger cannot be written), it is called again at each look until it does not.  `forgive`
    forgets what was held against a card: the next look decides afresh.
    """

    LOOK_S = 2.0
    DECLARED_S = 300.0  # where nothing is measured a look can tell nothing new
    PATIENCE_S = 20.0  # a reset or a reloaded driver takes seconds

    def __init__(
        self,
        sample: Callable[[], Sequence[CardSample]],
        *,
        failed: Callable[[CardId, str], None],
        looked: Callable[[], None] = lambda: None,
    ) -> None:
        self._sample, self._failed, self._looked = sample, failed, looked
        self._silent: dict[CardId, float] = {}  # since when it does not answer, steady seconds
        self._told: set[CardId] = set()
        self._owed: dict[CardId, str] = {}  # that it has failed could not be told yet, and why it has
        self._readings: dict[CardId, Reading] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="card-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """A look that hangs in the driver is not waited for long."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(timeout=2)

    def reading(self, card: CardId) -> Reading:
        return self._readings.get(card, Reading(healthy=None, message="nobody has looked at it yet"))

    def forgive(self, card: CardId) -> None:
        self._silent.pop(card, None)
        self._owed.pop(card, None)
        self._told.discard(card)

    def heard(self, fault: XidEvent) -> bool:
        """True where the fault means that the card has failed; then `failed` is called."""
        if fault.card is None or fault.code not in FATAL_XIDS:
            return False
        why = f"Xid {fault.code}: {fault.meaning}"
        self._readings[fault.card] = Reading(healthy=False, message=why)
        self._tell(fault.card, why)
        return True

    def look(self, samples: Sequence[CardSample], at: float) -> None:
        """One look, at a steady time in seconds."""
        before = dict(self._readings)
        for card, why in list(self._owed.items()):
            self._tell(card, why)
        for sample in samples:
            card = sample.card
            if not sample.measured:
                self._readings[card] = Reading(healthy=True, message="declared, not measured")
            elif not sample.lost:
                if not sample.error:
                    self._silent.pop(card, None)
                answers = sample.memory_total is not None
                self._readings[card] = Reading(healthy=True if answers else None, message=sample.error)
            else:
                since = self._silent.setdefault(card, at)
                self._readings[card] = Reading(healthy=False, message=sample.error)
                if at - since >= self.PATIENCE_S and card not in self._told and card not in self._owed:
                    self._tell(card, f"does not answer for {at - since:.0f} s: {sample.error}")
        if {c: r.healthy for c, r in before.items()} != {c: r.healthy for c, r in self._readings.items()}:
            self._looked()

    def _tell(self, card: CardId, why: str) -> None:
        self._owed[card] = why
        try:
            self._failed(card, why)
        except Exception:
            log.exception("card %s has failed and is still in the pool; the next look tries again", card)
            return
        self._told.add(card)
        self._owed.pop(card, None)

    def _run(self) -> None:
        while not self._closed.is_set():
            pause = self.LOOK_S
            try:
                samples = self._sample()
                self.look(samples, time.monotonic())
                if not any(sample.measured or sample.lost for sample in samples):
                    pause = self.DECLARED_S
            except Exception:
                log.exception("a look at the cards failed; the next one follows")
            self._closed.wait(pause)
