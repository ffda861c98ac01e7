"""Windows: claim a whole card for a time, say that one is still there, let go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.domain.errors import Conflict, Forbidden, InvalidRequest
from tenure.domain.lifecycle import JobState
from tenure.domain.window import WindowState
from tenure.ledger import WindowRow
from tenure.manifests.durations import parse_duration
from tenure.manifests.instants import parse_instant

from ..caller import Caller
from ..views.windows import window_json
from ..window_rule import DEFAULT_US

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["claim_window", "release_window", "renew_window"]

LONGEST_S = 31 * 86_400
LEASE_S = (2.0, 3600.0)


def claim_window(
    platform: Platform,
    *,
    caller: Caller,
    length: str | int | None = None,
    card: str | None = None,
    begin: str | None = None,
    including_resident: bool = False,
    wait: bool = False,
    lease_s: float | None = None,
) -> dict[str, Any]:
    """Claim a card, or the one that is free soonest.  The answer is the window as it is then.

    Raises Conflict (WindowTaken), saying who is in the way, unless the caller waits or names a time to begin.  With
    `lease_s` the window ends when its owner has not renewed it for that long.
    """
    length_us = _length_us(length)
    begin_at = None
    if begin is not None:
        try:
            begin_at = parse_instant(begin, platform.clock.now())
        except ValueError as error:
            raise InvalidRequest(f"begin: {error}", field="begin") from None
    if lease_s is not None and not LEASE_S[0] <= lease_s <= LEASE_S[1]:
        raise InvalidRequest(f"a lease of {lease_s} s is not between 2 s and an hour", field="lease_s")
    chosen = platform.pool.find(card) if card is not None else None
    if chosen is not None and chosen.cordoned:
        raise Conflict(f"card {chosen.id} is out of the pool; `tenure undrain` puts it back", code="CardDrained")
    conductor = platform.conductor
    with conductor.lock:
        row = conductor.windows.claim(
            conductor,
            owner=caller.user,
            length_us=length_us,
            card=chosen.id if chosen is not None else None,
            begin_at=begin_at,
            including_resident=including_resident,
            lease_us=int(lease_s * 1e6) if lease_s is not None else None,
            wait=wait,
        )
        answer = window_json(platform, row)
    conductor.wake()
    return answer


def renew_window(platform: Platform, id: str, *, caller: Caller, keep: bool = False) -> dict[str, Any]:
    """The owner is still there; the window as it is.  With `keep` it needs to be told so no longer."""
    conductor = platform.conductor
    with conductor.lock:
        row = _mine(platform, id, caller, "renew")
        if row.state is not WindowState.ENDED:
            if conductor.windows.renew(row):
                conductor.wake()
            if keep and row.lease_us is not None:
                row = conductor.windows.keep(row)
        return window_json(platform, row)


def release_window(platform: Platform, id: str, *, caller: Caller) -> dict[str, Any]:
    """Let go.  Twice is once.  One that a waiting job needs goes with the job (Conflict)."""
    conductor = platform.conductor
    with conductor.lock:
        row = _mine(platform, id, caller, "release")
        if row.state is not WindowState.ENDED:
            live = conductor.live.get(row.job_id) if row.job_id is not None else None
            if live is not None and live.state is JobState.QUEUED:
                raise Conflict(f"window {id} is what job {live.id} waits for; cancel or hold the job", code="JobWaits")
            row = conductor.windows.release(row, by=caller.user)
        answer = window_json(platform, row)
    conductor.wake()
    return answer


def _mine(platform: Platform, id: str, caller: Caller, verb: str) -> WindowRow:
    row = platform.ledger.window(id)
    if not caller.may_change(row.owner):
        raise Forbidden(f"window {id} belongs to {row.owner}; only its owner or an operator may {verb} it")
    return row


def _length_us(length: str | int | None) -> int:
    if length is None:
        return DEFAULT_US
    try:
        seconds = parse_duration(str(length))
    except ValueError as error:
        raise InvalidRequest(f"for: {error}", field="for") from None
    if seconds is None or not 1 <= seconds <= LONGEST_S:
        raise InvalidRequest("for: a window lasts at least a second and at most 31 days", field="for")
    return int(seconds * 1e6)
