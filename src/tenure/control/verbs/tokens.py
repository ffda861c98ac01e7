"""What the diary keeps of access tokens: who made, changed or ended which one, and what it may do; never the token.

The tokens themselves are files of the portal's (`portal/tokens.py`), which calls this before it touches one: a token that
opens something has its line, whatever happens in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tenure.domain.events import Event, EventKind

from ..caller import Caller, operators_only

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["TokenChange", "record_token"]

_DONE = {
    EventKind.TOKEN_CREATED: "created",
    EventKind.TOKEN_CHANGED: "changed",
    EventKind.TOKEN_REVOKED: "revoked",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenChange:
    """One change that is about to be made.  `fingerprint` tells two tokens of one name apart, and opens nothing."""

    kind: EventKind
    name: str
    fingerprint: str
    rights: Mapping[str, Any]  # as REST says them; of a token that ends, what it had
    was: Mapping[str, Any] = field(default_factory=dict)  # of a change: the fields that were different


def record_token(platform: Platform, change: TokenChange, *, caller: Caller) -> None:
    """On disk when this returns.  Raises Forbidden, and Unavailable where the diary cannot be written: then nothing is done."""
    operators_only(caller, "change tokens")
    told = {name: change.rights[name] for name in change.was} if change.was else change.rights
    says = f"token {change.name} is {_DONE[change.kind]} by {caller.user}: {_in_words(told)}"
    data = {
        "name": change.name,
        "fingerprint": change.fingerprint,
        "by": caller.user,
        "via": caller.via,
        "rights": dict(change.rights),
    }
    if change.was:
        data["was"] = dict(change.was)
    event = Event(kind=change.kind, at=platform.clock.now(), message=says, data=data)
    with platform.ledger.transaction() as tx:
        tx.event(event)


def _in_words(rights: Mapping[str, Any]) -> str:
    """Of a new token all that is not the rule, of a changed one what is new."""
    said = []
    if "role" in rights:
        said.append(str(rights["role"]))
    if "scopes" in rights:
        said.append(f"for {' and '.join(rights['scopes'])}")
    if "models" in rights and "models" in rights.get("scopes", ("models",)):
        said.append(f"may ask {', '.join(rights['models']) if rights['models'] is not None else 'all models'}")
    for name, words in (
        ("requests_per_minute", "requests a minute"),
        ("tokens_per_minute", "model tokens a minute"),
        ("tokens_per_day", "model tokens a day"),
    ):
        if name in rights and (rights[name] is not None or "role" not in rights):
            said.append(f"no limit on {words}" if rights[name] is None else f"{rights[name]:,} {words}")
    if "expires_at" in rights and (rights["expires_at"] is not None or "role" not in rights):
        said.append(f"expires {rights['expires_at'] or 'never'}")
    return ", ".join(said)
