"""The pool: the cards that work is placed on, and those that are out of it.

Out means: the card takes nothing new.  Whether what runs there finishes or has to go is said with it.  It is written
down, so that a restart does not put a card back; only a person does.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tenure.domain.errors import InvalidRequest, NotFound
from tenure.domain.ids import CardId, Instant
from tenure.domain.workload import Card
from tenure.ledger import Cordon, Ledger

__all__ = ["Pool"]


class Pool:
    """Safe from any thread.  `cards` is what the engine is told."""

    def __init__(self, ledger: Ledger, cards: Sequence[Card]) -> None:
        self._ledger = ledger
        self._cards = tuple(cards)
        self._lock = threading.Lock()
        self._out = ledger.cordons()

    @property
    def cards(self) -> tuple[Card, ...]:
        out = self._out
        return tuple(replace(card, cordoned=card.id in out) for card in self._cards)

    @property
    def out(self) -> Mapping[CardId, Cordon]:
        return self._out

    def find(self, word: str) -> Card:
        """A card by its id, by the beginning of it, or by its number.  Raises NotFound; InvalidRequest where several begin so."""
        cards = self.cards
        exact = [card for card in cards if card.id == word or str(card.index) == word]
        like = exact or [card for card in cards if len(word) >= 4 and card.id.startswith(word)]
        if len(like) == 1:
            return like[0]
        known = ", ".join(card.id for card in cards) or "none"
        if len(like) > 1:
            raise InvalidRequest(
                f"{word!r} is the beginning of {len(like)} cards; write more of it ({known})", field="id"
            )
        raise NotFound(f"there is no card {word!r}; there are: {known}")

    def take_out(self, cordon: Cordon, *, message: str, data: Mapping[str, object] | None = None) -> bool:
        """Written down before it holds.  False where the card is out already, and nothing about it is new."""
        with self._lock:
            before = self._out.get(cordon.card)
            if before is not None and (before.move or not cordon.move) and (before.failed or not cordon.failed):
                return False
            with self._ledger.transaction(durable=True) as tx:
                tx.cordon(cordon, message=message, data=data)
            self._out = {**self._out, cordon.card: cordon}
            return True

    def put_back(self, card: CardId, *, at: Instant, by: str, message: str) -> bool:
        """False where it was not out."""
        with self._lock:
            if card not in self._out:
                return False
            with self._ledger.transaction(durable=True) as tx:
                tx.uncordon(card, at=at, by=by, message=message)
            self._out = {id: cordon for id, cordon in self._out.items() if id != card}
            return True
