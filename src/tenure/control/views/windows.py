"""Windows as doors show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.domain.ids import Instant
from tenure.domain.window import WindowState
from tenure.ledger import JobRow, WindowRow

from .. import window_gate
from ..clock import wire

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["holders_of_window", "window", "window_json", "window_timeline", "windows"]

DRAWN = 200


def windows(platform: Platform, *, all: bool = False, limit: int = 100) -> list[dict[str, Any]]:
    """Those that have not ended, card by card in the order of their turns; with `all` the newest, newest first."""
    if all:
        rows = platform.ledger.windows(limit=limit)
    else:
        with platform.conductor.lock:
            claims = platform.conductor.windows
            rows = [row for card in sorted({row.card for row in claims.rows}) for row in claims.of_card(card)]
    return [window_json(platform, row) for row in rows]


def window(platform: Platform, id: str) -> dict[str, Any]:
    """Raises NotFound."""
    return window_json(platform, platform.ledger.window(id))


def window_timeline(platform: Platform, *, hours: float = 1.0) -> list[dict[str, Any]]:
    """Which windows held which card when, in the last `hours`; `to` null: still."""
    since = Instant(platform.clock.now() - int(hours * 3.6e9))
    rows = platform.ledger.windows(limit=DRAWN)
    held = [row for row in reversed(rows) if row.opened_at is not None and (row.ended_at or since) >= since]
    return [
        {
            "window": row.id,
            "card": row.card,
            "owner": row.owner,
            "job_id": row.job_id,
            "from": wire(row.opened_at),
            "to": wire(row.ended_at),
            "ends_at": wire(row.ends_at),
            "reason": row.reason,
        }
        for row in held
    ]


def window_json(platform: Platform, row: WindowRow) -> dict[str, Any]:
    """`message`: what it waits for, holds, or ended of."""
    conductor = platform.conductor
    with conductor.lock:
        over = row.state is WindowState.ENDED
        message = row.message if over else conductor.windows.standing(conductor, row)
        ends_at = row.ends_at if over else conductor.windows.ends_at(row)
    return {
        "id": row.id,
        "card": row.card,
        "owner": row.owner,
        "state": str(row.state),
        "reason": row.reason,
        "message": message,
        "job_id": row.job_id,
        "length_s": row.length_us / 1e6,
        "including_resident": row.including_resident,
        "lease_s": row.lease_us / 1e6 if row.lease_us is not None else None,
        "claimed_at": wire(row.claimed_at),
        "begin_at": wire(row.begin_at),
        "opened_at": wire(row.opened_at),
        "ends_at": wire(ends_at),
        "ended_at": wire(row.ended_at),
    }


def holders_of_window(platform: Platform, row: JobRow) -> list[dict[str, Any]]:
    """The windows that keep a queued job out, as `why` names those in its way.  Under the conductor's lock."""
    conductor = platform.conductor
    live = conductor.live.get(row.id)
    if live is None:
        return []
    claims = conductor.windows
    own = claims.of_job(row.id) if live.spec.window else None
    barring = [claim for claim in claims.of_card(own.card) if claims.holds(claim)] if own is not None else []
    barring = [claim for claim in barring if claim is not own] or list(window_gate.barring(conductor, live).values())
    return [
        {
            "id": claim.id,
            "name": "window",
            "owner": claim.owner,
            "priority_class": None,
            "since": wire(claim.opened_at or claim.claimed_at),
            "amount": 0,
            "preemptible": False,
            "until": wire(claims.ends_at(claim)),
            "because": f"{claims.standing(conductor, claim)}, claimed by {claim.owner}",
        }
        for claim in barring
    ]
