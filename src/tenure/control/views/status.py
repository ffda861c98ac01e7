"""The house at a glance, for `doctor` and for pages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import tenure

from ..clock import wire
from .jobs import counts
from .policy import problem_json

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["status"]


def status(platform: Platform) -> dict[str, Any]:
    health = platform.backend.probe()
    return {
        "version": tenure.__version__,
        "home": str(platform.settings.home),
        "pid": os.getpid(),
        "started_at": wire(platform.started_at),
        "now": wire(platform.clock.now()),
        "cards": len(platform.cards),
        "card_source": platform.found.source,
        "card_reason": platform.found.reason,
        "counts": counts(platform),
        "backend": {"name": platform.backend.name, "ok": health.ok, "message": health.message, **health.details},
        "ledger": {"url": platform.settings.ledger_shown, "last_event": platform.news.cursor},
        "faults": platform.conductor.faults,
        "trouble": platform.conductor.trouble,
        "problems": [problem_json(problem) for problem in platform.policy.problems],
    }
