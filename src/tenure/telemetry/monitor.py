"""Cards, watched: a reading of each whenever one asks, and the driver's faults (Xids) as they come.

Nothing here raises because of a card: no driver is a reason, a lost card is a reading with an error.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tenure.domain.ids import CardId, Instant

from .cards import discover
from .nvml import CardSample, FoundCard, Nvml, NvmlUnavailable

__all__ = ["CardMonitor", "CardSample", "XidEvent"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEvent:
    """The driver reported a fault.  `card` is None where the driver does not say which."""

    card: CardId | None
    at: Instant
    code: int
    meaning: str


XID_MEANINGS = {
    13: "a kernel did something illegal on the card",
    31: "a kernel touched memory that it does not own",
    43: "the card stopped working for one process",
    45: "the driver cleaned up after a process that ended",
    48: "memory lost two bits at once (uncorrectable ECC)",
    63: "a bad memory row was retired",
    64: "a bad memory row could not be retired",
    74: "an NVLink link failed",
    62: "the card's own controller has stopped",
    79: "the card has fallen off the bus",
    92: "many correctable memory errors",
    94: "an uncorrectable memory error, contained to one process",
    95: "an uncorrectable memory error that could not be contained",
    119: "the card's own firmware does not answer",
    120: "the card's own firmware has failed",
    140: "an uncorrectable memory error",
}


def _now() -> Instant:
    return Instant(time.time_ns() // 1000)


class CardMonitor:
    """Looks at cards, again and again, and listens for their faults.  Safe from any thread; close it once.

    With `cards` None it watches what `discover` finds when it is made.  A card that was there stays in every answer:
    when it is lost its readings carry an error, and when it comes back (a reset) they are numbers again.
    """

    WAIT_MS = 200  # how long a stop of the listener may take
    REOPEN_S = 5.0  # between two tries at a library that answers nothing
    RELISTEN_S = 60.0  # how long a card that could not be heard stays unheard after it has come back

    def __init__(self, cards: Sequence[FoundCard] | None = None, *, now: Callable[[], Instant] = _now) -> None:
        self.cards: tuple[FoundCard, ...] = tuple(discover().cards if cards is None else cards)
        self.listening = ""  # why Xids of some card cannot be heard; empty = all is heard, or nobody listens
        self._now = now
        self._lock = threading.Lock()
        self._nvml: Nvml | None = None
        self._handles: dict[CardId, object] = {}
        self._retry_at = 0.0  # monotonic
        self._problem = ""
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> CardMonitor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def sample(self) -> list[CardSample]:
        """One reading per card, in the order of `cards`.  Never raises because of a card or a driver."""
        with self._lock:
            nvml = self._session() if any(card.measured for card in self.cards) else None
            samples = [self._look(nvml, card) for card in self.cards]
            if nvml is not None and all(s.error and s.memory_used is None for s in samples if s.measured):
                # Nothing answers: a driver that was reloaded, or the only card was reset.  A new session may see it.
                self._drop()
            return samples

    def memory(self, cards: Collection[CardId]) -> list[CardSample]:
        """Who holds how much of these cards.  As `sample`, with fewer questions; a card that is declared is left out."""
        with self._lock:
            wanted = [card for card in self.cards if card.measured and card.id in cards]
            nvml = self._session() if wanted else None
            return [self._look(nvml, card, memory_only=True) for card in wanted]

    def _session(self) -> Nvml | None:
        if self._closed.is_set():
            self._problem = "the monitor is closed"
            return None
        if self._nvml is None and time.monotonic() >= self._retry_at:
            try:
                self._nvml, self._problem = Nvml.open(), ""
            except NvmlUnavailable as error:
                self._problem = str(error)
                self._retry_at = time.monotonic() + self.REOPEN_S
        return self._nvml

    def _drop(self) -> None:
        if self._nvml is not None:
            self._nvml.close()
        self._nvml = None
        self._handles.clear()
        self._problem = self._problem or "no card answers; NVML is opened again in a few seconds"
        self._retry_at = time.monotonic() + self.REOPEN_S

    def _look(self, nvml: Nvml | None, card: FoundCard, *, memory_only: bool = False) -> CardSample:
        at = self._now()
        if not card.measured:
            return CardSample(card=card.id, at=at, memory_total=card.memory, measured=False)
        if nvml is None:
            return CardSample(card=card.id, at=at, error=self._problem)
        try:
            handle = self._handles.get(card.id)
            if handle is None:
                handle = self._handles[card.id] = nvml.handle(card.uuid)
            sample = (nvml.read_memory if memory_only else nvml.read)(card.id, handle, at)
        except Exception as error:
            sample = CardSample(card=card.id, at=at, error=str(error) or type(error).__name__, lost=True)
        if sample.error:
            self._handles.pop(card.id, None)  # looked up anew the next time: the old handle may be dead for good
        return sample

    def listen(self, heard: Callable[[XidEvent], None]) -> None:
        """Call `heard` for every Xid from now on, from a thread of the monitor's own.  Once; a no-op without cards."""
        if self._thread is not None or self._closed.is_set() or not any(card.measured for card in self.cards):
            return
        ready = threading.Event()
        self._thread = threading.Thread(target=self._hear, args=(heard, ready), name="tenure-xid", daemon=True)
        self._thread.start()
        ready.wait(5.0)  # returns once registered: no Xid after `listen` is missed

    def _hear(self, heard: Callable[[XidEvent], None], ready: threading.Event) -> None:
        """Hold a session of its own, so that `sample` may drop and reopen its one meanwhile.

        A session hears the cards that answered when it began: one that lacks some ends after `RELISTEN_S`.
        """
        while not self._closed.is_set():
            try:
                with Nvml.open() as nvml:
                    self._hear_session(nvml, heard, ready)
                continue  # at once: the cards that are well must not go unheard
            except NvmlUnavailable as error:
                self.listening = str(error)
            except Exception as error:  # a thread that dies in silence is a fault that nobody hears of
                self.listening = str(error) or type(error).__name__
            ready.set()
            self._closed.wait(self.REOPEN_S)

    def _hear_session(self, nvml: Nvml, heard: Callable[[XidEvent], None], ready: threading.Event) -> None:
        handles: dict[CardId, object] = {}
        gone: list[str] = []
        for card in self.cards:
            if card.measured:
                try:
                    handles[card.id] = nvml.handle(card.uuid)
                except nvml.errors as error:
                    gone.append(f"{card.id}: {error}")
        events, addresses, deaf = nvml.xid_set(handles)
        self.listening = "; ".join([*gone, deaf] if deaf else gone)
        ready.set()
        until = time.monotonic() + self.RELISTEN_S if self.listening else math.inf
        try:
            while not self._closed.is_set() and time.monotonic() < until:
                xid = nvml.wait_xid(events, self.WAIT_MS)
                if xid is not None:
                    self._tell(heard, addresses.get(xid[0]), xid[1])
        finally:
            nvml.free_set(events)

    def _tell(self, heard: Callable[[XidEvent], None], card: CardId | None, code: int) -> None:
        meaning = XID_MEANINGS.get(code, "see the driver's list of Xid errors")
        try:
            heard(XidEvent(card=card, at=self._now(), code=code, meaning=meaning))
        except Exception:
            _log.exception("a listener for Xid events failed")

    def close(self) -> None:
        """Stop listening and give NVML back.  Idempotent; returns within a second even where a card hangs."""
        self._closed.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
        if self._lock.acquire(timeout=1.0):
            try:
                self._drop()
            finally:
                self._lock.release()
