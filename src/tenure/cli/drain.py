"""`tenure drain`: a card takes nothing new; what runs there finishes, or moves."""

from __future__ import annotations

from .call import Call
from .cards import over_cards
from .grammar import Option, Verb

VERB = Verb(
    usage="drain CARD… [--move]",
    options=(Option(names=("--move",), help="ask what runs there to leave now; it is queued again"),),
    positionals=(1, None),
    what="card",
    details="""
    CARD is an id as `tenure cards` prints it, the beginning of one, or its number.  A drained card stays out over
    restarts until `tenure undrain`.  A card that the driver reports as failed is drained by itself.
    """,
)


def run(call: Call) -> int:
    return over_cards(call, ":drain", {"move": call.parsed.on("move")})
