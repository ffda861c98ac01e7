"""Cards: who holds which share and how much memory, declared beside measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.domain.attempt import AttemptState
from tenure.domain.events import EventKind
from tenure.domain.ids import CardId, Instant, JobId
from tenure.ledger import Cordon

from ..clock import wire
from .windows import window_json

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["card_timeline", "cards"]

DRAWN = 400  # attempts; more would be thinner than a pixel


def cards(platform: Platform) -> list[dict[str, Any]]:
    """One entry a card.  `source` says where its numbers come from; what nobody measured is null, never a guess."""
    samples = (
        {sample.card: sample for sample in platform.monitor.sample()} if platform.found.source == "measured" else {}
    )
    seen = platform.attribution(list(samples.values()))
    found = {card.id: card for card in platform.found.found}
    out = platform.pool.out
    with platform.conductor.lock:
        usage = platform.engine.card_usage()
        live = {x.id: x for x in platform.conductor.live.values()}
        shown = []
        for part in usage:
            sample, about = samples.get(part.card), found.get(part.card)
            holders = []
            for hold in part.holders:
                x = live.get(JobId(hold.key))
                told = sample is not None and sample.processes is not None  # a driver may not list processes
                measured = seen.by_job.get(JobId(hold.key), {}).get(part.card, 0) if told else None
                holders.append(
                    {
                        "id": str(hold.key),
                        "name": x.spec.name if x else "",
                        "owner": x.spec.owner if x else "",
                        "project": x.spec.project if x else "",
                        "priority_class": x.priority_class if x else None,
                        "state": str(x.state) if x else "",
                        "since": wire(x.started_at) if x else None,
                        "shares": hold.shares,
                        "memory_declared": hold.memory,
                        "memory_measured": measured,
                    }
                )
            shown.append(
                {
                    "id": str(part.card),
                    "name": about.name if about else part.flavor,
                    "flavor": part.flavor,
                    "source": platform.found.source,
                    "shares": part.shares,
                    "shares_free": part.shares_free,
                    "memory": part.memory,
                    "memory_free": part.memory_free,
                    "memory_declared": part.memory - part.memory_free,
                    "memory_measured": sample.memory_used if sample else None,
                    "memory_total_measured": sample.memory_total if sample else None,
                    "utilization": sample.utilization if sample else None,
                    "temperature": sample.temperature if sample else None,
                    "power": sample.power if sample else None,
                    "error": sample.error if sample else "",
                    "driver": about.driver if about else "",
                    "cordoned": part.cordoned,
                    "cordon": cordon_json(out[part.card]) if part.card in out else None,
                    "window": _claim(platform, part.card),
                    "windows": [window_json(platform, row) for row in platform.conductor.windows.of_card(part.card)],
                    "holders": holders,
                    "strangers": [
                        {
                            "pid": holding.pid,
                            "command": holding.owner.command,
                            "user": holding.owner.user,
                            "memory_measured": holding.memory,
                        }
                        for holding in seen.strangers
                        if holding.card == part.card
                    ],
                }
            )
    return shown


def _claim(platform: Platform, card: CardId) -> dict[str, Any] | None:
    """The window that holds the card, or for which it is being cleared."""
    claims = platform.conductor.windows
    held = next((row for row in claims.of_card(card) if claims.holds(row)), None)
    if held is None:
        return None
    about = {"id": held.id, "owner": held.owner, "state": str(held.state), "job_id": held.job_id}
    return {**about, "ends_at": wire(claims.ends_at(held)), "message": claims.standing(platform.conductor, held)}


def cordon_json(cordon: Cordon) -> dict[str, Any]:
    """Why a card is out of the pool.  `failed`: the driver says so; `move`: what ran there was queued again."""
    return {
        "at": wire(cordon.at),
        "by": cordon.by,
        "reason": cordon.reason,
        "move": cordon.move,
        "failed": cordon.failed,
    }


def card_timeline(platform: Platform, *, hours: float = 1.0) -> list[dict[str, Any]]:
    """Who held which card when, in the last `hours`, and who took it."""
    since = Instant(platform.clock.now() - int(hours * 3.6e9))
    shown = []
    lately = platform.ledger.events(kinds=[EventKind.ATTEMPT_CREATED], newest=True, limit=DRAWN)
    jobs = list(dict.fromkeys(event.job_id for event in lately if event.job_id is not None))
    rows = platform.ledger.jobs_by_id(jobs)
    attempts = [attempt for several in platform.ledger.attempts_of(jobs).values() for attempt in several]
    for attempt in sorted(attempts, key=lambda a: a.created_at):
        placements = attempt.placement if isinstance(attempt.placement, list) else []
        if not placements or (attempt.ended_at is not None and attempt.ended_at < since):
            continue
        row = rows.get(attempt.job_id)
        for place in placements:
            shown.append(
                {
                    "card": place["card"],
                    "job_id": attempt.job_id,
                    "run_id": attempt.run_id,
                    "name": row.name if row else "",
                    "priority_class": row.priority_class if row else None,
                    "shares": place["shares"],
                    "memory": place["memory"],
                    "from": wire(attempt.created_at),
                    "to": wire(attempt.ended_at) if attempt.state is AttemptState.ENDED else None,
                    "outcome": str(attempt.outcome) if attempt.outcome else None,
                    "ended_by": attempt.evicted_by,
                }
            )
    return shown
