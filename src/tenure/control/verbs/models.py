"""Wake and sleep: a model is asked for, or let go.  The gateway's own report of what it saw comes in here as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..caller import Caller, operators_only
from ..views.models import model_json

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["report_inference", "sleep", "wake"]


def wake(
    platform: Platform, name: str, *, caller: Caller, cause: str = "by hand", by: str = "", insist: bool = True
) -> dict[str, Any]:
    """Ask for a model; the model as it is then.  `insist` False leaves one alone that has just failed."""
    operators_only(caller, "wake a model by hand")
    kept = platform.models.wake(name, by=by or caller.user, cause=cause, insist=insist)
    return model_json(platform, kept)


def sleep(platform: Platform, name: str, *, caller: Caller, cause: str = "by hand", by: str = "") -> dict[str, Any]:
    """Put a model to sleep: it takes nothing new, and what is in flight has its `stopTimeout`."""
    operators_only(caller, "put a model to sleep")
    return model_json(platform, platform.models.sleep(name, by=by or caller.user, cause=cause))


def report_inference(platform: Platform, report: Mapping[str, Any], *, caller: Caller) -> None:
    """From the gateway alone: it runs as the platform's owner."""
    operators_only(caller, "report inference")
    platform.models.reported(report)
