"""A home looked at without its daemon: the ledger, the policy files and the cards, as they lie there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tenure.domain.errors import InvalidRequest, NotFound
from tenure.domain.ids import Instant
from tenure.domain.policy import Policy
from tenure.domain.workload import Card
from tenure.ledger import Ledger
from tenure.settings import Settings

from . import cards as card_finding
from . import policies
from .specs import SpecStore

__all__ = ["AtRest", "at_rest", "since_of"]

MAX_SINCE_S = 366 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRest:
    """What a platform would be put together from.  Nothing of it is changed."""

    ledger: Ledger
    policy: Policy
    cards: tuple[Card, ...]
    source: str
    specs: SpecStore
    now: Instant


@contextmanager
def at_rest(settings: Settings) -> Iterator[AtRest]:
    """Raises NotFound where there is no ledger yet, InvalidManifest for a policy that would be refused."""
    file = settings.ledger_file
    if file is not None and not file.exists():
        where = f"there is no ledger at {file}: nothing has run there yet (`tenure up -d` starts the platform)"
        raise NotFound(where, code="NoLedger")
    found = card_finding.find((), settings.cards_file)
    ledger = Ledger.open(file or settings.ledger_url)
    try:
        yield AtRest(
            ledger=ledger,
            policy=policies.read(settings.policy_dir).current,
            cards=found.cards,
            source=found.source,
            specs=SpecStore(ledger),
            now=Instant(time.time_ns() // 1000),
        )
    finally:
        ledger.close()


def since_of(now: Instant, since_s: float) -> Instant:
    """Raises InvalidRequest for a time that is no past."""
    if not 0 < since_s <= MAX_SINCE_S:
        raise InvalidRequest(f"since {since_s} s is not between 0 and a year", field="since_s")
    return Instant(now - int(since_s * 1e6))
