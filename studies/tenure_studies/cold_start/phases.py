"""The arithmetic of a cold start: which moments make which phases, and what many wakes say together.  Pure.

Moments are unix seconds: the caller's own first and last, the server's in between.  A phase lasts from the last moment that
is known to its own; the phases of a wake add up to the caller's wait.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["PHASES", "TICK_S", "Split", "difference", "order", "percentile", "split", "spread"]

PHASES: Mapping[str, str | None] = {
    "admission": "process_started_at",  # asked, until there is a process: to be woken, to be let in, to be started
    "process_start": "main_at",
    "imports": "imports_done_at",
    "load": "load_done_at",
    "compile": "compile_done_at",
    "ready": "ready_at",
    "first_token": "first_token_at",  # the door has to notice that it is ready; then the question is answered
    "delivery": None,  # until the caller has it
}
"""Each phase and the server's word for its end; the caller knows the end of the last one itself."""

TICK_S = 0.02  # the kernel tells a process's start to 10 ms; moments that near each other have no order
RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One wait in phases: seconds, None where the server does not tell.  `disbelieved`: its words that cannot be true."""

    phases: dict[str, float | None]
    disbelieved: list[str] = field(default_factory=list)


def split(asked_at: float, told_at: float, said: Mapping[str, object] | None) -> Split:
    """The wait from `asked_at` to `told_at`, by what the server said.

    Where the server does not tell a moment the phase is None, and its time is part of the next one.  A moment before the one
    that must precede it, or after the caller had its answer, counts as that other moment if it is off by less than a tick,
    and as not told if by more.  Without a single word of the server's every phase is None.
    """
    phases: dict[str, float | None] = dict.fromkeys(PHASES)
    disbelieved: list[str] = []
    last, known = asked_at, False
    for phase, name in PHASES.items():
        moment = told_at if name is None else (said or {}).get(name)
        if not isinstance(moment, int | float) or isinstance(moment, bool):
            continue
        if name is not None:
            if moment < last - TICK_S or moment > told_at + TICK_S:
                disbelieved.append(name)
                continue
            known = True
        elif not known:
            continue
        moment = min(max(float(moment), last), told_at)
        phases[phase] = moment - last
        last = moment
    return Split(phases=phases, disbelieved=disbelieved)


def order(wakes: int, seed: int) -> list[tuple[str, int]]:
    """Which arm is woken when: (arm, how manyth of its arm).

    The first wake of all is number 0 of `kept`, whose caches are still empty.  Then come pairs, one of each arm, in random
    order within the pair: whatever drifts meets both arms alike.
    """
    rng = random.Random(f"order/{seed}")
    planned = [("kept", 0)]
    for number in range(1, wakes + 1):
        pair = [("kept", number), ("fresh", number)]
        rng.shuffle(pair)
        planned += pair
    return planned


def percentile(values: Sequence[float], share: float) -> float:
    """Between the two nearest in proportion.  Raises ValueError for no values."""
    if not values:
        raise ValueError("of no values there is no percentile")
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (ranked[above] - ranked[below]) * (place - below)


def spread(values: Sequence[float | None]) -> dict[str, float] | None:
    """n, mean, p50, p90, min and max of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {
        "n": len(known), "mean": sum(known) / len(known), "p50": percentile(known, 0.5), "p90": percentile(known, 0.9),
        "min": min(known), "max": max(known),
    }  # fmt: skip


def difference(kept: Sequence[float | None], fresh: Sequence[float | None], seed: str) -> dict[str, float] | None:
    """How much longer the median of `fresh` is than that of `kept`, with its 95 % interval by bootstrap.

    The same seed gives the same interval.  None where an arm has fewer than two values.
    """
    one, other = ([value for value in values if value is not None] for values in (kept, fresh))
    if len(one) < 2 or len(other) < 2:
        return None
    rng = random.Random(f"bootstrap/{seed}")

    def median(values: Sequence[float]) -> float:
        return percentile(values, 0.5)

    drawn = sorted(
        median(rng.choices(other, k=len(other))) - median(rng.choices(one, k=len(one))) for _ in range(RESAMPLES)
    )
    return {
        "median": median(other) - median(one),
        "low": percentile(drawn, 0.025),
        "high": percentile(drawn, 0.975),
    }
