"""How long a model should stay up, judged by the requests that came: the journal and the diary, read; nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tenure.domain.errors import InvalidRequest
from tenure.domain.events import EventKind

from ..advice import DAY, SECOND_IS_WORTH, WINDOWS, Row, Traffic, advise, spell, wakes_in
from ..clock import wire
from ..requests_seen import seen_of

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["model_advice"]

WEEK_DAYS = 7.0
DIARY = 20_000  # lines about models that are looked at for past wakes


def model_advice(
    platform: Platform,
    name: str,
    *,
    days: float = WEEK_DAYS,
    second_is_worth: float = SECOND_IS_WORTH,
    windows_s: Sequence[float] = (),
) -> dict[str, Any]:
    """Rows by the day for each idle window and for a resident model.  Raises NotFound, InvalidRequest."""
    for field, value in (("days", days), ("second_is_worth", second_is_worth), *(("windows_s", w) for w in windows_s)):
        if not 0 < value < 1e9 and not (field == "second_is_worth" and value == 0):
            raise InvalidRequest(f"{field}: {value:g} makes no sense here; it must be more than 0", field=field)
    model = platform.models.find(name).model
    now = platform.clock.now() / 1e6
    since = now - days * DAY
    seen = seen_of(platform.settings.home / "gateway", model.name, since=since)
    begin = now if seen.first_at is None else min(now, max(since, seen.first_at))
    lines = platform.ledger.events(kinds={EventKind.MODEL_WOKEN, EventKind.MODEL_CHANGED}, limit=DIARY, newest=True)
    wakes = wakes_in(reversed(lines), model.name)
    now_s = None if model.resident else model.idle_after_s
    advice = advise(
        Traffic(seen.requests, until=now),
        span_s=now - begin,
        wakes=wakes,
        shares=model.shares,
        idle_after_s=now_s,
        second_is_worth=second_is_worth,
        windows=windows_s or WINDOWS,
    )
    return {
        "model": model.name,
        "since": wire(int(begin * 1e6)),
        "until": wire(int(now * 1e6)),
        "days": round((now - begin) / DAY, 8),
        "requests": len(seen.requests),
        "shares": model.shares,
        "gpu_memory": model.gpu_memory,
        "idle_after_s": now_s,
        "wake": {**asdict(wakes), "basis": _basis(wakes.count)},
        "second_is_worth": second_is_worth,
        "rows": [_row(row, shares=model.shares, memory=model.gpu_memory, now=now_s) for row in advice.rows],
        "recommended": None if advice.idle_after_s is None else {"idle_after_s": advice.idle_after_s, "spec": ("resident: false, " if model.resident else "") + f"idleAfter: {spell(advice.idle_after_s)}"},
        "reason": advice.reason,
    }  # fmt: skip


def _basis(count: int) -> str:
    if not count:
        return "no wake of this model that came to be ready is in the diary"
    return f"the last {count} wakes in the diary, asked for until ready" if count > 1 else "one wake in the diary"


def _row(row: Row, *, shares: int, memory: int, now: float | None) -> dict[str, Any]:
    hours = row.held_s / 3600
    return {
        "idle_after": spell(row.idle_after_s),
        "idle_after_s": row.idle_after_s,
        "now": row.idle_after_s == now,
        "wakes_per_day": _round(row.wakes),
        "hours_up_per_day": _round(hours),
        "share_hours_per_day": _round(hours * shares),
        "gib_hours_per_day": _round(hours * memory / (1 << 30)),
        "cold_calls_per_day": _round(row.cold_calls),
        "waited_s_per_day": _round(row.waited_s),
        "waited_s_per_cold_call": _round(row.waited_per_call_s),
        "cost_share_s_per_day": _round(row.cost),
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
