"""Stop means the card is empty: the end of an attempt is believed when its cards say so too.

Where cards are measured, an attempt whose processes have all left is looked for on them before its quota is given away.
A process of its own that is still listed keeps its place, by name, for as long as it lives.  Memory that nobody lives to
answer for is waited for, `BOUND_S` at most; then it is said, and the place is given away.  A look is made in a thread of
its own: a driver that hangs holds up this end and nothing else.  On declared cards nothing of this happens.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenure.domain.amounts import format_bytes
from tenure.domain.attempt import AttemptState, Observation
from tenure.domain.ids import CardId, JobId, RunId
from tenure.domain.lifecycle import HOLDS_QUOTA
from tenure.telemetry.leftovers import Floors, Leftover
from tenure.telemetry.monitor import CardSample
from tenure.telemetry.owners import Holding

from .live import Live

__all__ = ["Lingers", "Vacated", "Vacating"]

log = logging.getLogger(__name__)

LEFT = frozenset({AttemptState.ENDED, AttemptState.LOST})


@dataclass(frozen=True, slots=True)
class Lingers:
    """It is not out yet: `who` lives and holds memory, or nobody does and the memory is not back."""

    run: RunId
    message: str
    who: tuple[Holding, ...] = ()


@dataclass(frozen=True, slots=True)
class Vacated:
    """Its end may be written.  `remark` says what was not as it should be; empty = the cards are empty of it."""

    seen: Observation
    remark: str = ""
    left: tuple[Leftover, ...] = ()


@dataclass(slots=True)
class _Leaving:
    seen: Observation
    run_dir: str
    cards: tuple[CardId, ...]
    everybody: Mapping[JobId, Live]
    since: float
    due: float
    pause: float
    about: frozenset[tuple[CardId, int]] = frozenset()  # the card, and the process or 0, that were told of
    last: tuple[Leftover, ...] = ()

    def alone(self, card: CardId) -> bool:
        """Has nobody else of ours a place there?"""
        others = (one for one in list(self.everybody.values()) if one.current_run != self.seen.run_id)
        holding = (one.admission for one in others if one.state in HOLDS_QUOTA and one.admission is not None)
        return not any(place.card == card for admission in holding for place in admission.placements)


class Vacating:
    """`look(cards)` reads them; `say` is told, from a thread of its own, of every `Lingers` and every `Vacated`."""

    BOUND_S = 10.0  # a driver that has not given memory back after this long does not give it back
    QUIET_S = 0.5  # what comes back within this long is not worth a word
    LOST_S = 1.0  # a card that has fallen off the bus holds nothing, and gets nothing
    FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.25

    def __init__(
        self,
        *,
        measured: Collection[CardId],
        look: Callable[[Collection[CardId]], Sequence[CardSample]],
        say: Callable[[Lingers | Vacated], None],
    ) -> None:
        self._measured = frozenset(measured)
        self._look, self._say = look, say
        self._floors, self._floors_lock = Floors(), threading.Lock()
        self._leaving: dict[RunId, _Leaving] = {}
        self._passed: set[RunId] = set()
        self._asked: queue.SimpleQueue[_Leaving | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """A look that hangs in the driver is not waited for long."""
        self._asked.put(None)
        if self._thread is not None:
            self._thread.join(timeout=2)

    def saw(self, samples: Sequence[CardSample]) -> None:
        """Looks that somebody else made: what a card has in use when nobody does is learnt from them."""
        if self._measured:
            with self._floors_lock:
                self._floors.saw(samples)

    def keeps(self, live: Live, seen: Observation, run_dir: Path, everybody: Mapping[JobId, Live]) -> bool:
        """Is this the end of an attempt whose cards have yet to be looked at?  Then that begins, and `say` follows.

        `everybody`: the jobs that have not ended; who else has a place on a card is read off it at each look.
        """
        if seen.state not in LEFT or live.admission is None or not self._measured:
            return False
        places = dict.fromkeys(place.card for place in live.admission.placements)
        mine = tuple(card for card in places if card in self._measured)
        if not mine:
            return False
        with self._lock:
            if seen.run_id in self._passed:
                self._passed.discard(seen.run_id)
                return False
            if seen.run_id not in self._leaving:
                now = time.monotonic()
                leaving = _Leaving(seen, str(run_dir), mine, everybody, now, now, self.FIRST_PAUSE_S)
                self._leaving[seen.run_id] = leaving
                self._asked.put(leaving)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="vacating", daemon=True)
                self._thread.start()
        return True

    # ------------------------------------------------------------------ its own thread

    def _run(self) -> None:
        open_: list[_Leaving] = []
        while True:
            patience = max(0.0, min(one.due for one in open_) - time.monotonic()) if open_ else None
            try:
                asked = self._asked.get(timeout=patience)
                if asked is None:
                    return
                open_.append(asked)
                if not self._asked.empty():
                    continue  # whoever has come with it is looked for in the same reading
            except queue.Empty:
                pass
            now = time.monotonic()
            due = [one for one in open_ if one.due <= now]
            if due:
                try:
                    gone = self._look_at(due)
                    open_ = [one for one in open_ if one.seen.run_id not in gone]
                except Exception:
                    log.exception("a look at who has left failed; the next one follows")
                    for one in due:
                        one.due = now + self.LONGEST_PAUSE_S

    def _look_at(self, due: Sequence[_Leaving]) -> set[RunId]:
        """One reading for all of them; those that are out, or are waited for no longer."""
        try:
            samples = {s.card: s for s in self._look({card for one in due for card in one.cards})}
        except Exception as error:
            log.exception("a look at the cards failed")
            samples, problem = {}, str(error) or type(error).__name__
        else:
            problem = "the card does not answer"
        gone = set()
        for one in due:
            with self._floors_lock:
                one.last = tuple(
                    self._floors.look(samples[card], run_dir=one.run_dir, alone=one.alone(card))
                    if card in samples
                    else Leftover(card=card, error=problem)
                    for card in one.cards
                )
            if self._is_out(one):
                gone.add(one.seen.run_id)
        return gone

    def _is_out(self, one: _Leaving) -> bool:
        now = time.monotonic()
        left = tuple(card for card in one.last if not card.came_back)
        living = tuple(holding for card in left for holding in card.survivors)
        if living:
            one.since = now  # the driver has its time once the last of them has left
        bound = self.LOST_S if all(card.lost for card in left) else self.BOUND_S
        if left and (living or now - one.since < bound):
            one.due, one.pause = now + one.pause, min(self.LONGEST_PAUSE_S, one.pause * 1.5)
            if living:
                about = frozenset((holding.card, holding.pid) for holding in living)
                self._tell(one, about, _named(living), living)
            elif now - one.since > self.QUIET_S:
                self._tell(one, frozenset((card.card, 0) for card in left), "; ".join(map(_unexplained, left)), ())
            return False
        with self._floors_lock:
            for card in left:
                self._floors.accept(card)
        with self._lock:
            self._leaving.pop(one.seen.run_id, None)
            self._passed.add(one.seen.run_id)
        self._say(Vacated(one.seen, "; ".join(map(_unexplained, left)), left))
        return True

    def _tell(
        self, one: _Leaving, about: frozenset[tuple[CardId, int]], message: str, living: tuple[Holding, ...]
    ) -> None:
        """Once for the same processes: an amount that has changed is no news."""
        if about != one.about:
            one.about = about
            self._say(Lingers(one.seen.run_id, message, living))


def _named(living: Sequence[Holding]) -> str:
    named = ", ".join(
        f"{h.owner.command or 'a process'} (pid {h.pid}"
        + (f", {format_bytes(h.memory)} of card {h.card}" if h.memory is not None else f", card {h.card}")
        + ")"
        for h in living
    )
    return f"still on the card, so its share stays taken: {named}"


def _unexplained(left: Leftover) -> str:
    if left.error:
        return f"card {left.card} could not be looked at: {left.error}"
    others = ", ".join(
        f"{h.owner.command or 'pid'} {h.pid} ({h.owner.kind}{' ' + h.owner.id if h.owner.id else ''})"
        for h in left.others
    )
    by = f"the driver lists {others}" if others else "the driver lists nobody"
    return f"{format_bytes(left.unexplained or 0)} of card {left.card} are not back ({by})"
