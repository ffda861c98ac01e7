"""Models on the wire: their table, what is asked of one, and advice."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from .base import Loose, Strict

__all__ = ["AdviceRow", "Model", "ModelAdvice", "ModelsSeen", "Report", "Sleep", "Wake"]


class Model(Loose):
    """`port` is said only of a model that is ready; `blocked_by` names the models that hold what it waits for.

    `window`: it cannot wake before the end of that one.
    """

    name: str
    state: Literal["asleep", "queued", "starting", "ready", "draining", "failed"]
    job_id: str | None
    run_id: str | None
    reason: str
    message: str
    in_flight: int
    held: int
    wakes: int
    last_inference_at: str | None
    sleeps_at: str | None
    aliases: list[str]
    adapters: list[str]
    resident: bool
    inference_paths: list[str]
    stop_timeout_s: float
    port: int | None
    traceparent: str | None
    blocked_by: list[str]
    placeable: bool
    retry_after_s: float
    failures: int
    window: dict[str, Any] | None
    last_wake: dict[str, Any]


class ModelsSeen(Loose):
    version: int
    models: list[Model]


class ModelReport(Loose):
    """What the gateway saw of one model since it last spoke."""

    in_flight: int = Field(default=0, ge=0, le=10**9)
    held: int = Field(default=0, ge=0, le=10**9)
    keep_alive_s: float | None = None
    active: bool = Field(default=False, description="There was inference.")
    first_token: bool = Field(default=False, description="Its first answer has begun.")


class HeldReport(Loose):
    model: str
    state: str = ""
    what: str = ""


class Report(Loose):
    version: int | None = Field(default=None, description="Of the table that the gateway has seen.")
    models: dict[str, ModelReport] | None = None
    held: list[HeldReport] | None = None


class Wake(Strict):
    cause: str = Field(default="by hand", max_length=300)
    by: str = Field(default="", max_length=200, description="On whose behalf; the caller without one.")
    insist: bool = Field(default=True, description="Also within the backoff after a failure.")


class Sleep(Strict):
    cause: str = Field(default="by hand", max_length=300)
    by: str = Field(default="", max_length=200)


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
