"""What advice on a model looks like on the wire."""

from __future__ import annotations

from typing import Any

from .wire import Loose

__all__ = ["AdviceRow", "ModelAdvice"]


class AdviceRow(Loose):
    """One idle window; `idle_after_s` null is a resident model.  All amounts are by the day."""

    idle_after: str
    idle_after_s: float | None
    now: bool
    wakes_per_day: float
    hours_up_per_day: float
    share_hours_per_day: float
    gib_hours_per_day: float
    cold_calls_per_day: float
    waited_s_per_day: float | None
    waited_s_per_cold_call: float | None
    cost_share_s_per_day: float | None


class ModelAdvice(Loose):
    """`recommended` is null where too little is known; `reason` says why, or what the recommendation saves."""

    model: str
    since: str
    until: str
    days: float
    requests: int
    shares: int
    gpu_memory: int
    idle_after_s: float | None
    wake: dict[str, Any]
    second_is_worth: float
    rows: list[AdviceRow]
    recommended: dict[str, Any] | None
    reason: str
