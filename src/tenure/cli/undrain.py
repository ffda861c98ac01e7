"""`tenure undrain`: a card that was drained, or failed, is back in the pool."""

from __future__ import annotations

from .call import Call
from .cards import over_cards
from .grammar import Verb

VERB = Verb(usage="undrain CARD…", positionals=(1, None), what="card", details="`tenure drain` takes it out.")


def run(call: Call) -> int:
    return over_cards(call, ":undrain")
