"""Drain and undrain: a card takes nothing new, until it is put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.ledger import Cordon

from ..caller import Caller, operators_only
from ..views.cards import cards

if TYPE_CHECKING:
    from tenure.domain.ids import CardId

    from ..app import Platform

__all__ = ["drain", "undrain"]


def drain(platform: Platform, id: str, *, caller: Caller, move: bool = False) -> dict[str, Any]:
    """Take a card out of the pool; the card as it is then.  Twice is once.

    What runs there finishes; with `move` it is asked to leave (NodeFailures) and queued again.  Holds over restarts.
    """
    operators_only(caller, "drain a card")
    card = platform.pool.find(id)
    reason = f"drained by {caller.user}"
    message = f"card {card.id} is out of the pool: {reason}" + (", and what runs there moves" if move else "")
    cordon = Cordon(card=card.id, at=platform.clock.now(), by=caller.user, reason=reason, move=move)
    if platform.pool.take_out(cordon, message=message):
        platform.cards_changed()
    return _shown(platform, card.id)


def undrain(platform: Platform, id: str, *, caller: Caller) -> dict[str, Any]:
    """Put a card back, whoever took it out.  One that still does not answer is taken out again."""
    operators_only(caller, "put a card back")
    card = platform.pool.find(id)
    platform.watch.forgive(card.id)
    message = f"card {card.id} is back in the pool: put back by {caller.user}"
    if platform.pool.put_back(card.id, at=platform.clock.now(), by=caller.user, message=message):
        platform.cards_changed()
    return _shown(platform, card.id)


def _shown(platform: Platform, card: CardId) -> dict[str, Any]:
    return next(shown for shown in cards(platform) if shown["id"] == card)
