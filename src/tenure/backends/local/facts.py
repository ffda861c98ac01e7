"""From the lines of a journal to what is known of the attempt: the same fold for the supervisor's news and for a reader.

`Facts.known` is an `Observation` as a plain dictionary (see `wire.py`); the rest is what only a successor needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .verdict import Exit

__all__ = ["Facts", "fold"]


class Facts:
    """What the lines say, whether or not their writer still lives.  The state is `absent` where there are none."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {"state": "absent", "at": 0, "survivors": [], "details": {}}
        self.opened: Mapping[str, Any] = {}
        self.started_elapsed = 0
        self.members: dict[int, int] = {}  # pid -> start time, of those not seen to leave
        self.exits: list[Exit] = []
        self.stops: list[Mapping[str, Any]] = []  # that took effect

    def feed(self, line: Mapping[str, Any]) -> None:
        """Take one more line.  Unknown kinds are a later version's business."""
        known = self.known
        known["at"] = max(known["at"], line.get("at", 0))
        kind = line["kind"]
        if kind == "opened":
            self.opened = line
            known.update(state="starting", run_id=line["run_id"])
        elif kind == "started":
            self.started_elapsed = line["elapsed"]
            known.update(state="running", started_at=line["at"], processes=line["live"])
        elif kind == "member":
            self.members[line["pid"]] = line["started"]
        elif kind == "exited":
            self.members.pop(line["pid"], None)
            self.exits.append(Exit(line["rank"], line["exit_code"], line["signal"]))
        elif kind == "live":
            known["processes"] = line["live"]
        elif kind == "stop":
            self.stops.append(line)
            known["state"] = "stopping"
        elif kind == "survivors":
            known.update(state="stopping", survivors=line["survivors"])
        elif kind == "code-changed":
            known["details"]["code_changed"] = line["changed"]
        elif kind == "successor":
            known["details"]["lost"] = line["reason"]
        elif kind == "ended":
            for name in ("state", "outcome", "exit_code", "signal", "reason", "message", "failed_rank", "ended_at"):
                known[name] = line.get(name)
            known["survivors"] = []
            known["details"]["elapsed_us"] = line.get("elapsed_us")

    @property
    def ended(self) -> bool:
        return self.known["state"] in ("ended", "launch-failed")


def fold(lines: Iterable[Mapping[str, Any]]) -> Facts:
    """All lines at once."""
    facts = Facts()
    for line in lines:
        facts.feed(line)
    return facts
