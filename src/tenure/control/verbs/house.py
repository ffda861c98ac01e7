"""Verbs about the house itself: its policy, and going down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..caller import Caller, operators_only
from ..views.policy import problem_json

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["reload_policy", "stop_daemon"]


def reload_policy(platform: Platform, *, caller: Caller) -> dict[str, Any]:
    """Read the policy directory again: all of it, or (InvalidManifest) nothing."""
    operators_only(caller, "reload the policy")
    problems = platform.reload_policy(by=caller.user)
    return {"ok": True, "problems": [problem_json(problem) for problem in problems]}


def stop_daemon(platform: Platform, *, caller: Caller, keep_jobs: bool) -> None:
    """Ask the daemon to go down; returns at once.  `keep_jobs` leaves supervisors and their jobs running."""
    operators_only(caller, "stop the platform")
    platform.ask_to_stop(keep_jobs=keep_jobs)
