"""The expected start of a job that waits: copied under the lock, replayed outside it.

What a window keeps out is replayed as if it came into line when that window ends, with all who wait for the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tenure.domain.ids import Instant, JobId, WorkloadKey
from tenure.domain.lifecycle import JobState
from tenure.domain.policy import Policy
from tenure.domain.reasons import PendingReason
from tenure.domain.workload import Card, Workload
from tenure.engine import Engine
from tenure.engine.engine import EngineOptions, Reservation
from tenure.engine.expectation import LINE, Lasting, Situation, expect, situation
from tenure.ledger import WindowRow

from .. import window_gate
from ..clock import wire
from ..histories import MAX_NAMES, histories
from ..live import Live
from ..window_jobs import on_card
from ..window_rule import Rule

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["expected_start"]


def expected_start(platform: Platform, id: str) -> tuple[dict[str, Any] | None, str]:
    """`{p50, p90, basis}` and an empty text, or None and the reason why nothing can be said.

    The conductor's lock is held for the copy alone, a few milliseconds for thousands that wait.
    """
    with platform.conductor.lock:
        now, wall = platform.clock.steady(), platform.clock.now()
        live = platform.conductor.live.get(JobId(id))
        if live is None:
            return None, "it is not in line yet: it came this moment"
        if live.state is not JobState.QUEUED:
            return None, "it does not wait any more"
        first, windows = Instant(now), tuple[WindowRow, ...]()
        if live.reason == PendingReason.WAITING_FOR_WINDOW and not live.in_engine:
            first, windows = window_gate.opens(platform.conductor, live)
            copied = _line_behind(platform, live, first) if windows else None
            if copied is None:
                return None, f"it is not in line yet: {live.message}"
        elif not live.in_engine:
            return None, f"it is not in line yet: {live.message or live.reason}"
        else:
            found = situation(platform.engine, WorkloadKey(id), now)
    if windows and copied is not None:
        found = _as_if_in_line(*copied, key=WorkloadKey(id), now=now)
    if isinstance(found, str):
        return None, found
    known, capped = _known(platform, found, now)
    answer = expect(found, known)
    if answer.p50 is None or answer.p90 is None:
        more = f"; of so many names the histories of the first {MAX_NAMES} were read" if capped else ""
        return None, answer.reason + more
    skew = wall - now
    p50, p90 = max(answer.p50, first), max(answer.p90, first)
    basis = f"{_ends(windows, wire(first + skew))}, then {answer.basis}" if windows else answer.basis
    return {"p50": wire(p50 + skew), "p90": wire(p90 + skew), "basis": basis}, ""


def _ends(windows: tuple[WindowRow, ...], at: str | None) -> str:
    named = " and ".join(f"window {row.id} of {row.owner}" for row in windows)
    return f"the end of {named} ({at} at the earliest)"


_Copied = tuple[Policy, Sequence[Card], EngineOptions, tuple[Reservation, ...], list[tuple[Workload, Instant | None]]]


def _line_behind(platform: Platform, live: Live, first: Instant) -> _Copied | None:
    """Who holds quota and who waits, with those whom windows keep out in line from the end of these; None: too many.

    One with a window of its own has nobody before it then but those whom that window leaves alone or waits for, and
    whoever is not on its card.
    """
    conductor, engine = platform.conductor, platform.engine
    own = conductor.windows.of_job(live.id) if live.spec.window else None
    if own is not None:
        rule = Rule(engine.policy)
        there = on_card(conductor, own.card)
        leave = {WorkloadKey(x.id) for x in there if not (rule.untouched(x, own) or rule.spared(x))}
        holders = tuple(held for held in engine.reservations() if held.workload.key not in leave)
        return engine.policy, engine.cards, engine.options, holders, [(live.workload(conductor.cards), first)]
    waiting = [other for other in conductor.live.values() if other.state is JobState.QUEUED]
    behind = [other for other in waiting if other.reason == PendingReason.WAITING_FOR_WINDOW and not other.in_engine]
    inside = [other for other in waiting if other.in_engine]
    if len(behind) + len(inside) > LINE:
        return None
    line: list[tuple[Workload, Instant | None]] = [(other.workload(conductor.cards), None) for other in inside]
    line += [(other.workload(conductor.cards), first) for other in behind if not other.spec.window]
    return engine.policy, engine.cards, engine.options, engine.reservations(), line


def _as_if_in_line(
    policy: Policy,
    cards: Sequence[Card],
    options: EngineOptions,
    holders: tuple[Reservation, ...],
    line: list[tuple[Workload, Instant | None]],
    *,
    key: WorkloadKey,
    now: Instant,
) -> Situation | str:
    """An engine of its own, in which the windows are over when they are over."""
    engine = Engine(policy, cards, options)
    for held in holders:
        engine.restore(held.workload, held.admission, reserved_at=held.reserved_at, evicting=held.evicting)
    for workload, after in line:
        engine.add(replace(workload, avoid=frozenset()) if after is not None else workload, requeue_at=after)
    return situation(engine, key, now)


def _known(platform: Platform, s: Situation, now: Instant) -> tuple[dict[WorkloadKey, Lasting], bool]:
    """Time limits, histories, and how long those that hold the card have run."""
    everybody = {key: platform.conductor.live.get(JobId(key)) for key in s.everybody()}
    names = list(dict.fromkeys(live.spec.name for live in everybody.values() if live is not None))
    runs = histories(platform.ledger, names)
    ran = {r.workload.key: max(0, now - r.reserved_at) for r in s.holders}
    known: dict[WorkloadKey, Lasting] = {}
    for key, live in everybody.items():
        if live is None:
            continue
        limit = live.spec.time_limit_s
        known[key] = Lasting(
            name=live.spec.name,
            limit_us=int(limit * 1e6) if limit else None,
            runs=runs.get(live.spec.name, ()),
            ran_us=ran.get(key, 0),
            grace_us=int(live.spec.grace_s * 1e6),
            returns=live.state is not JobState.CANCELLING,
        )
    return known, len(names) > MAX_NAMES
