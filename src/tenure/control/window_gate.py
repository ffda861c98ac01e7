"""What windows keep from starting, and how that is said.  Asked before the engine decides, under the loop's lock.

A job with a window of its own starts in it and nowhere else.  Everybody else may start where no window shuts them out:
one that holds its card, one for which the card is being cleared, or one that comes before the job can have ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.domain.ids import CardId, Instant
from tenure.domain.model import Model
from tenure.domain.reasons import PendingReason
from tenure.domain.window import WindowState
from tenure.ledger import WindowRow

from .clock import span, wire
from .gates import Closed
from .live import Live
from .model_jobs import model_of
from .window_rule import Rule, limit_us, uses_card

if TYPE_CHECKING:
    from .conductor import Conductor

__all__ = ["barring", "check", "opens", "shut_to", "verdict"]


def check(conductor: Conductor, live: Live) -> Closed | None:
    """Whether windows keep a queued job out altogether; cards that it may not be placed on are left in `avoid`."""
    shut, live.avoid = verdict(conductor, live)
    if shut is not None and live.spec.window and conductor.windows.need(live):
        conductor.wake()
    return shut


def verdict(conductor: Conductor, live: Live) -> tuple[Closed | None, frozenset[CardId]]:
    """What keeps a queued job out as things are now, or else the cards that it may not be placed on."""
    if live.spec.window:
        return _own(conductor, live)
    if not conductor.windows.rows or not uses_card(live):
        return None, frozenset()
    barred = barring(conductor, live)
    if not _everywhere(conductor, barred):
        return None, frozenset(barred)
    first = _first_over(conductor, barred)
    return Closed(reason=PendingReason.WAITING_FOR_WINDOW, message=_told(conductor, first, live)), frozenset()


def barring(conductor: Conductor, live: Live) -> dict[CardId, WindowRow]:
    """The cards on which a job may not start now, each with the window that says so."""
    windows, rule, now = conductor.windows, Rule(conductor.engine.policy), conductor.clock.steady()
    found: dict[CardId, WindowRow] = {}
    for row in windows.rows:
        if rule.untouched(live, row):
            continue
        begins = windows.begins(row)
        if windows.holds(row):
            found[row.card] = row
        elif begins is not None and model_of(live) is None:
            # A model may wake until then: it leaves when it is asked to.
            limit = limit_us(live)
            if limit is None or now + limit > begins:
                found.setdefault(row.card, row)
            else:
                windows.look_after(Instant(begins - limit))
    return found


def opens(conductor: Conductor, live: Live) -> tuple[Instant, tuple[WindowRow, ...]]:
    """When the last of the windows that keep a job out has ended on the first card to be free of them, in steady time and
    at the earliest; and those windows.  It can only be later: a window may have to wait for its card to be clear.
    """
    now = conductor.clock.steady()
    own = conductor.windows.of_job(live.id) if live.spec.window else None
    cards = [own.card] if own is not None else [card.id for card in conductor.cards if not card.cordoned]
    found = (_free_from(conductor, live, card, own) for card in cards)
    return min(found, key=lambda item: item[0], default=(now, ()))


def _free_from(
    conductor: Conductor, live: Live, card: CardId, own: WindowRow | None
) -> tuple[Instant, tuple[WindowRow, ...]]:
    windows, rule, limit = conductor.windows, Rule(conductor.engine.policy), limit_us(live)
    at, passed = conductor.clock.steady(), list[WindowRow]()
    for row in windows.of_card(card):
        if row is own:
            break
        begins = windows.begins(row)
        if own is None and rule.untouched(live, row):
            continue
        if begins is not None and begins > at and (model_of(live) is not None or (limit and at + limit <= begins)):
            break  # it may start before that one
        end = windows.over_by(row)
        at = end if row.state is WindowState.ACTIVE else Instant(max(at, begins or 0) + row.length_us)
        passed.append(row)
    return at, tuple(passed)


def shut_to(conductor: Conductor, model: Model, *, priority: int) -> WindowRow | None:
    """The window in which this model cannot wake now, on any card; the one that is over first."""
    if not (model.shares or model.gpu_memory):
        return None
    stays = model.resident or Rule(conductor.engine.policy).is_always_on(priority)
    holding = [row for row in conductor.windows.rows if conductor.windows.holds(row)]
    barred = {row.card: row for row in holding if row.including_resident or not stays}
    return _first_over(conductor, barred) if _everywhere(conductor, barred) else None


def _everywhere(conductor: Conductor, barred: dict[CardId, WindowRow]) -> bool:
    """On every card of the pool.  Where there is none, it is not a window that is in the way."""
    pool = [card.id for card in conductor.cards if not card.cordoned]
    return bool(pool) and all(card in barred for card in pool)


def _first_over(conductor: Conductor, barred: dict[CardId, WindowRow]) -> WindowRow:
    return min(barred.values(), key=lambda row: (conductor.windows.over_by(row), row.seq))


def _told(conductor: Conductor, row: WindowRow, live: Live) -> str:
    """Why this window keeps that job waiting."""
    limit = limit_us(live)
    if row.state is not WindowState.SCHEDULED:
        return conductor.windows.claimed(row)
    may = f"may run for {span(limit)}" if limit is not None else "has no --time"
    begins = f"window {row.id} of {row.owner} begins at {wire(row.begin_at)} on card {row.card}"
    return f"{begins}, and this job {may}; one that ends before it may start"


def _own(conductor: Conductor, live: Live) -> tuple[Closed | None, frozenset[CardId]]:
    """A job with a window of its own starts in it, and nowhere else."""
    own = conductor.windows.of_job(live.id)
    if own is not None and own.state is WindowState.ACTIVE:
        return None, frozenset(card.id for card in conductor.cards if card.id != own.card)
    if own is None:
        message = "no card can be claimed for it now"
    else:
        message = f"its window {own.id} {conductor.windows.standing(conductor, own, brief=True)}"
    return Closed(reason=PendingReason.WAITING_FOR_WINDOW, message=message), frozenset()
