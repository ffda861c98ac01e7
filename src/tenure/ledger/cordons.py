"""Cards that are out of the pool: who took them out, when and why.  One row a card, with its line in the diary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from sqlalchemy import bindparam, delete, insert, select

from tenure.domain.events import EventKind
from tenure.domain.ids import CardId, Instant

from .diary import DiaryWriter
from .schema import cordons
from .session import Session

__all__ = ["Cordon", "CordonReads", "CordonWrites"]

_ALL = select(cordons.c.card, cordons.c.at, cordons.c.by, cordons.c.reason, cordons.c.move, cordons.c.failed).order_by(
    cordons.c.at, cordons.c.card
)
_LIFT = delete(cordons).where(cordons.c.card == bindparam("which"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cordon:
    """`move`: what runs there has to go, too.  `failed`: the driver says so, and not a person."""

    card: CardId
    at: Instant
    by: str
    reason: str
    move: bool = False
    failed: bool = False


class CordonReads(Session):
    """Questions about cards that are out."""

    def cordons(self) -> dict[CardId, Cordon]:
        """Every card that is out, the longest first."""
        return {
            CardId(card): Cordon(card=CardId(card), at=at, by=by, reason=reason, move=bool(move), failed=bool(failed))
            for card, at, by, reason, move, failed in self._rows(_ALL)
        }


class CordonWrites(CordonReads, DiaryWriter):
    """Out of the pool and back, each with its line in the diary."""

    def cordon(self, cordon: Cordon, *, message: str, data: Mapping[str, object] | None = None) -> None:
        """Out.  One that is out already is out for the new reason."""
        self._write(_LIFT, [{"which": cordon.card}])
        self._write(insert(cordons), [asdict(cordon)])
        told = {"card": cordon.card, "cordoned": True, "by": cordon.by, "move": cordon.move, "failed": cordon.failed}
        self._note(EventKind.CARDS_CHANGED, cordon.at, message=message, data={**told, **(data or {})})

    def uncordon(self, card: CardId, *, at: Instant, by: str, message: str) -> bool:
        """Back.  False, and no line, where it was not out."""
        if not self._write(_LIFT, [{"which": card}]):
            return False
        self._note(EventKind.CARDS_CHANGED, at, message=message, data={"card": card, "cordoned": False, "by": by})
        return True
