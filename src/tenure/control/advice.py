"""How long a model should stay up: what each idle window would have cost with the requests that really came.  Pure.

Promises: the idle clock is `control/models.py`'s own (it counts from the end of the last inference, never while one is
in flight; loading is held time; whoever asks while a model loads waits until it is ready), so what is said of the window
in force is what happened, but for wakes being all equally long.  The rule of the recommendation is one sum, which
docs/models.md states: share-seconds held, plus a price for each second that a caller waits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tenure.domain.events import Event, EventKind
from tenure.manifests.durations import format_duration

from .clock import span
from .wakes import BACK

__all__ = ["SECOND_IS_WORTH", "WINDOWS", "Advice", "Held", "Row", "Traffic", "WakeTimes", "advise", "spell", "wakes_in"]

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
WINDOWS = (
    *(minutes * MINUTE for minutes in (1, 2, 5, 10, 15, 20, 30, 45)), *(hours * HOUR for hours in (1, 1.5, 2, 3, 4, 6, 8, 12, 24)),
)  # fmt: skip
SECOND_IS_WORTH = 60.0  # share-seconds: one second of somebody's waiting is worth a minute of a share
FEWEST_REQUESTS, FEWEST_WAKES, SHORTEST_SPAN = 20, 3, DAY
AS_GOOD = 1.05  # what is set stays where nothing else is cheaper by more than this


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one idle window came to over the whole time.  `cold`: calls that waited for a wake; seconds."""

    wakes: int = 0
    held_s: float = 0.0
    cold: int = 0
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeTimes:
    """How long it took from being asked for until it was ready, over the last `count` wakes; None where none is known."""

    count: int = 0
    p50_s: float | None = None
    p90_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One idle window, by the day.  `idle_after_s` None is a resident model: it never sleeps and nobody waits.

    `cost` is in share-seconds a day.  The waiting is None where no wake has been measured.
    """

    idle_after_s: float | None
    wakes: float
    held_s: float
    cold_calls: float
    waited_s: float | None
    waited_per_call_s: float | None
    cost: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """`idle_after_s` None: nothing is recommended, and `reason` says why."""

    rows: tuple[Row, ...]
    idle_after_s: float | None
    reason: str


class Traffic:
    """Requests as (begin, seconds that the server had them), in any order; held time is no part of a request's own.

    A million take a second to sort; each window is then judged by the gaps that are longer than it.
    """

    def __init__(self, requests: Iterable[tuple[float, float]], *, until: float) -> None:
        pairs = sorted(requests)
        self.until = until
        self._begins = [begin for begin, _ in pairs]
        self._services = [service for _, service in pairs]
        self._ends = list(accumulate((begin + service for begin, service in pairs), max))
        first = self._begins[0] if pairs else 0.0
        self._sums = list(accumulate((begin - first for begin in self._begins), initial=0.0))
        self._first = first
        quiet = zip(self._begins[1:], self._ends, strict=False)
        self._gaps = [(k, begin - end) for k, (begin, end) in enumerate(quiet, start=1) if begin - end > 0]

    def __len__(self) -> int:
        return len(self._begins)

    def under(self, window: float, *, load: float) -> Held:
        """With this idle window, asleep at first, and every wake taking `load` seconds.

        Within a wake only the calls that came while it loaded end later than they would have; so between two sleeps
        nothing but one long gap has to be found.
        """
        begins, ends, sums = self._begins, self._ends, self._sums
        # With room, for the two sums may round differently; what is exact is judged below.
        gaps = [k for k, gap in self._gaps if gap >= window - 1e-3]
        wakes = cold = at = here = 0
        held = waited = 0.0
        while at < len(begins):
            ready = begins[at] + load
            loaded = max(at + 1, bisect_left(begins, ready, at))
            late = ready + max(self._services[at:loaded])
            while here < len(gaps) and (
                gaps[here] < loaded or begins[gaps[here]] < max(ends[gaps[here] - 1], late) + window
            ):
                here += 1
            following = gaps[here] if here < len(gaps) else len(begins)
            wakes, cold = wakes + 1, cold + loaded - at
            waited += (loaded - at) * (ready - self._first) - (sums[loaded] - sums[at])
            held += max(0.0, min(max(ends[following - 1], late) + window, self.until) - begins[at])
            at = following
        return Held(wakes=wakes, held_s=held, cold=cold, waited_s=waited)


def wakes_in(events: Iterable[Event], model: str) -> WakeTimes:
    """From the diary's lines about a model, oldest first: each wake that came to be ready."""
    took: list[float] = []
    asked: int | None = None
    for event in events:
        if event.data.get("model") != model:
            continue
        if event.kind is EventKind.MODEL_WOKEN:
            asked = None if event.data.get("cause") == BACK else event.at  # that one had nobody to wait for it
        elif event.kind is EventKind.MODEL_CHANGED and event.data.get("state") in ("ready", "asleep", "failed"):
            if asked is not None and event.data["state"] == "ready":
                took.append(max(0.0, (event.at - asked) / 1e6))
            asked = None
    if not took:
        return WakeTimes()
    took.sort()
    return WakeTimes(count=len(took), p50_s=_quantile(took, 0.5), p90_s=_quantile(took, 0.9))


def advise(
    traffic: Traffic,
    *,
    span_s: float,
    wakes: WakeTimes,
    shares: int,
    idle_after_s: float | None,
    second_is_worth: float = SECOND_IS_WORTH,
    windows: Sequence[float] = WINDOWS,
) -> Advice:
    """`span_s`: how long was watched; `idle_after_s`: what is set now, None for a resident model."""
    tried = sorted({*windows, *([] if idle_after_s is None else [idle_after_s])})
    price: Mapping[str, float] = {"span_s": span_s, "shares": shares, "second_is_worth": second_is_worth}
    rows = [_row(window, traffic, load=wakes.p50_s, **price) for window in tried]
    rows.append(_resident(shares))
    few = _too_few(traffic, span_s=span_s, wakes=wakes)
    if few:
        return Advice(rows=tuple(rows), idle_after_s=None, reason=few)
    best = _cheapest(rows[:-1], idle_after_s)
    slow = _cheapest([_row(window, traffic, load=wakes.p90_s, **price) for window in tried], idle_after_s)
    reason = _reason(rows, best, slow, wakes=wakes, idle_after_s=idle_after_s, second_is_worth=second_is_worth)
    return Advice(rows=tuple(rows), idle_after_s=best.idle_after_s, reason=reason)


def _row(
    window: float, traffic: Traffic, *, load: float | None, span_s: float, shares: float, second_is_worth: float
) -> Row:
    found = traffic.under(window, load=load or 0.0)
    days = max(span_s, 1.0) / DAY
    held, waited = found.held_s / days, None if load is None else found.waited_s / days
    return Row(
        idle_after_s=window,
        wakes=found.wakes / days,
        held_s=held,
        cold_calls=found.cold / days,
        waited_s=waited,
        waited_per_call_s=found.waited_s / found.cold if found.cold and load is not None else None,
        cost=None if waited is None else held * shares + waited * second_is_worth,
    )


def _resident(shares: int) -> Row:
    return Row(idle_after_s=None, wakes=0.0, held_s=DAY, cold_calls=0.0, waited_s=0.0, waited_per_call_s=None, cost=DAY * shares)  # fmt: skip


def _too_few(traffic: Traffic, *, span_s: float, wakes: WakeTimes) -> str:
    short = []
    if len(traffic) < FEWEST_REQUESTS:
        short.append(f"{_count(len(traffic), 'request')} of {FEWEST_REQUESTS}")
    if span_s < SHORTEST_SPAN:
        short.append(f"{span(int(span_s) * 1_000_000)} of watching of {spell(SHORTEST_SPAN)}")
    if wakes.count < FEWEST_WAKES:
        short.append(f"{_count(wakes.count, 'measured wake')} of {FEWEST_WAKES}")
    return f"too little is known to recommend anything: {', '.join(short)}" if short else ""


def _cheapest(rows: Sequence[Row], idle_after_s: float | None) -> Row:
    """The smallest cost, the shortest of equals; what is set where it is as good."""
    best = min(rows, key=lambda row: (row.cost or 0.0, row.idle_after_s or 0.0))
    kept = next((row for row in rows if row.idle_after_s == idle_after_s), best)
    return kept if (kept.cost or 0.0) <= AS_GOOD * (best.cost or 0.0) else best


def _reason(
    rows: Sequence[Row], best: Row, slow: Row, *, wakes: WakeTimes, idle_after_s: float | None, second_is_worth: float
) -> str:
    assert best.idle_after_s is not None
    assert wakes.p90_s is not None
    kept = best.idle_after_s == idle_after_s
    said = (
        f"{spell(best.idle_after_s)} {'is set and nothing is cheaper by more than 5 %' if kept else 'costs least'}: the model would be up "
        f"{best.held_s / HOUR:.1f} hours a day and callers would wait {best.waited_s or 0:.0f} s a day ({best.wakes:.1f} wakes), "
        f"{_hours(best.cost)} share-hours a day with a second of waiting at {second_is_worth:g} share-seconds"
    )
    now = next((row for row in rows if row.idle_after_s == idle_after_s), None)
    if now is not None and not kept:
        said += f"; as it is ({spell(idle_after_s)}) it is {_hours(now.cost)}"
    resident = rows[-1]
    if idle_after_s is not None and resident.cost is not None and best.cost is not None and resident.cost < best.cost:
        said += f"; resident would be {_hours(resident.cost)}"
    if slow.idle_after_s != best.idle_after_s and slow.idle_after_s is not None:
        said += f"; were every wake as slow as one in ten ({wakes.p90_s:.0f} s), it would be {spell(slow.idle_after_s)}"
    return said


def spell(seconds: float | None) -> str:
    """As a document's `idleAfter` is written: `40s`, `30m`, `1h30m`, `0.5s`; None is `resident`."""
    if seconds is None:
        return "resident"
    return format_duration(seconds) if seconds % 1 else span(int(seconds) * 1_000_000)


def _hours(cost: float | None) -> str:
    return f"{(cost or 0.0) / HOUR:.1f}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _quantile(ordered: Sequence[float], part: float) -> float:
    """Between neighbours where it falls between them."""
    at = part * (len(ordered) - 1)
    low = int(at)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (at - low)
