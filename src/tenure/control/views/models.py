"""Models, as scripts, pages and the gateway read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.domain.model import ModelState
from tenure.ledger import WindowRow

from ..clock import wire
from ..driving import traceparent_of
from ..kept import Kept
from ..wakes import STEPS

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["model_json", "models"]


def models(platform: Platform) -> list[dict[str, Any]]:
    """Every model that is declared, by name; and those that are not any more and have yet to leave."""
    return [model_json(platform, kept) for kept in platform.models.rows()]


def model_json(platform: Platform, kept: Kept) -> dict[str, Any]:
    """`port` is said only of a model that is ready; `window` only of one that cannot wake before the end of it.

    `retry_after_s`: how long a backoff still lasts, or that window, at least.  `failures`: how many there were in a row.
    """
    model, ready = kept.model, kept.state is ModelState.READY
    steady, due = platform.clock.steady(), kept.sleeps_us()
    sleeps = wire(platform.clock.now() + due - steady) if due is not None else None
    wait = max(0.0, (kept.not_before_us - steady) / 1e6) if kept.state is ModelState.FAILED else 0.0
    row = platform.models.window_of(kept)
    if row is not None:
        wait = max(wait, (platform.conductor.windows.over_by(row) - steady) / 1e6)
    return {
        "name": model.name,
        "state": str(kept.state),
        "job_id": kept.job,
        "run_id": kept.run,
        "reason": kept.reason,
        "message": kept.message,
        "in_flight": kept.in_flight,
        "held": kept.held,
        "wakes": kept.wakes,
        "last_inference_at": wire(kept.last_inference_at),
        "sleeps_at": sleeps,
        "aliases": list(model.aliases),
        "adapters": list(model.adapters),
        "resident": model.resident,
        "inference_paths": list(model.inference_paths),
        "stop_timeout_s": model.stop_timeout_s,
        "port": kept.port if ready else None,
        "traceparent": _traceparent(platform, kept) if ready else None,
        "blocked_by": list(kept.blocked_by),
        "placeable": kept.placeable,
        "retry_after_s": round(wait, 3),
        "failures": kept.failures,
        "window": _window(platform, row) if row is not None else None,
        "last_wake": {k: wire(v) if k in STEPS else v for k, v in dict(kept.last_wake).items()},
    }


def _traceparent(platform: Platform, kept: Kept) -> str | None:
    """The trace that its run is, for the spans of requests to name."""
    live = platform.conductor.live.get(kept.job) if kept.job is not None else None
    if live is None or kept.run is None:
        return None
    return traceparent_of(platform.conductor.driver.run_dir(kept.run), live.submitted_at)


def _window(platform: Platform, row: WindowRow) -> dict[str, Any]:
    """`ends_at` is not known of one that waits for its card to be clear: `message` says when it is at the earliest."""
    windows, clock = platform.conductor.windows, platform.clock
    about = {"id": row.id, "owner": row.owner, "card": row.card, "state": str(row.state)}
    message, ends_at = windows.claimed(row), windows.ends_at(row)
    if ends_at is None:
        message += f", and so until {wire(clock.now() + windows.over_by(row) - clock.steady())} at least"
    return {**about, "ends_at": wire(ends_at), "message": message}
