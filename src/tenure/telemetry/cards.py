"""The cards of this machine: found through NVML or declared by hand, and watched.

Nothing here raises because of a card: no driver is a reason, a lost card is a reading with an error.  A declared card
is never mistaken for a measured one: its id says `declared-N` and `measured` is False wherever it shows.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from tenure.domain.amounts import parse_bytes
from tenure.domain.errors import InvalidRequest
from tenure.domain.ids import CardId, Instant
from tenure.domain.workload import Card

from .nvml import CardSample, FoundCard, GpuProcess, Nvml, NvmlUnavailable

__all__ = [
    "DEFAULT_SHARES", "CardMonitor", "CardSample", "Discovery", "FoundCard", "GpuProcess", "XidEvent", "declared", "discover", "flavor_name", "to_card",
]  # fmt: skip

DEFAULT_SHARES = 8
MAX_SHARES = 1024
MAX_CARDS = 64
LEAST_MEMORY = 1 << 20  # `8x16` is 16 bytes, and nobody means that

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What was found.  `reason` says why there is no card, or which ones were left out and why; empty = all is well."""

    cards: tuple[FoundCard, ...] = ()
    reason: str = ""


def discover() -> Discovery:
    """Ask NVML for the cards, in its order (PCI bus).  Cards in MIG mode are left alone, and named in the reason."""
    try:
        nvml = Nvml.open()
    except NvmlUnavailable as error:
        return Discovery(reason=str(error))
    cards: list[FoundCard] = []
    left_out: list[str] = []
    with nvml:
        try:
            for index, handle, problem in nvml.handles():
                if handle is None:
                    left_out.append(f"card {index} does not answer: {problem}")
                    continue
                try:
                    card = nvml.describe(index, handle)
                    if nvml.in_mig_mode(handle):
                        left_out.append(f"card {index} ({card.uuid}) is in MIG mode and is left alone")
                    else:
                        cards.append(card)
                except nvml.errors as error:
                    left_out.append(f"card {index} does not answer: {error}")
        except nvml.errors as error:
            left_out.append(f"NVML does not count its cards: {error}")
    if not cards and not left_out:
        left_out.append("the NVIDIA driver is loaded and reports no card")
    return Discovery(cards=tuple(cards), reason="; ".join(left_out))


def flavor_name(model: str) -> str:
    """The model as a Kubernetes name: `NVIDIA H200 (fake)` -> `nvidia-h200-fake`.  At most 63 characters."""
    name = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")
    return name[:63].rstrip("-") or "card"


_DECLARED = re.compile(r"(?:(?P<cards>\d+)x)?(?P<shares>\d+)x(?P<memory>[^x]+)", re.IGNORECASE)


def declared(texts: str | Iterable[str]) -> list[FoundCard]:
    """The cards that `--card` flags declare: `8x16Gi` is one with eight shares and 16 GiB, `2x8x24Gi` two alike.

    Several flags declare several cards; ids count on through all of them.  Raises InvalidRequest.
    """
    cards: list[FoundCard] = []
    for text in [texts] if isinstance(texts, str) else texts:
        count, shares, memory = _parse_declared(text)
        for _ in range(count):
            index = len(cards)
            cards.append(
                FoundCard(
                    uuid=f"declared-{index}",
                    index=index,
                    name="declared card",
                    memory=memory,
                    measured=False,
                    shares=shares,
                )
            )
    if len(cards) > MAX_CARDS:
        raise InvalidRequest(f"{len(cards)} cards are declared; one machine has at most {MAX_CARDS}", field="card")
    return cards


def _parse_declared(text: str) -> tuple[int, int, int]:
    """(cards, shares, bytes) of one flag."""
    form = "write SHARESxMEMORY, such as 8x16Gi, or CARDSxSHARESxMEMORY, such as 2x8x24Gi"

    def refuse(why: str) -> InvalidRequest:
        return InvalidRequest(f"--card {text!r}: {why}; {form}", field="card")

    match = _DECLARED.fullmatch("".join(text.split()))
    if match is None:
        raise refuse("this is not a card")
    count, shares = int(match["cards"] or 1), int(match["shares"])
    try:
        memory = parse_bytes(match["memory"])
    except ValueError as error:
        raise refuse(str(error)) from None
    if not 1 <= count <= MAX_CARDS:
        raise refuse(f"the number of cards is 1 to {MAX_CARDS}, not {count}")
    if not 1 <= shares <= MAX_SHARES:
        raise refuse(f"a card has 1 to {MAX_SHARES} shares, not {shares}")
    if memory < LEAST_MEMORY:
        raise refuse(f"{match['memory']} is only {memory} bytes; a unit may be missing")
    return count, shares, memory


def to_card(
    card: FoundCard, *, shares: int = DEFAULT_SHARES, flavor: str | None = None, cordoned: bool = False
) -> Card:
    """The card as the engine places on it.  A declared card keeps its own shares; memory leaves out the driver's part."""
    return Card(
        id=card.id,
        flavor=flavor or flavor_name(card.name),
        shares=card.shares or shares,
        memory=card.usable_memory,
        index=card.index,
        cordoned=cordoned,
    )


# --- watching


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
        """Hold a session of its own, so that `sample` may drop and reopen its one meanwhile."""
        while not self._closed.is_set():
            try:
                with Nvml.open() as nvml:
                    self._hear_session(nvml, heard, ready)
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
        try:
            while not self._closed.is_set():
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
