"""The desk's words: a request, a model as it was last described, what may be done, and the bounds.  Values alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tenure.domain.model import ModelState

__all__ = ["Action", "Forward", "Limits", "Refuse", "Seen", "Sleep", "Ticket", "Wake", "seen_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds, in seconds where they are times."""

    held: int = 1024  # requests held at once, of all models together
    hold_s: float = 120.0  # while the model waits for its turn; loading has the model's own startTimeout
    backoff_s: float = 5.0  # so much of a backoff after a failure is waited through; who meets a longer one is told
    patience_s: float = 10.0  # after this long in line, whoever is up takes nothing new
    residence_s: float = 5.0  # but not before it has been ready for this long
    drain_s: float = 30.0  # and for this long; after that, what is in flight is too long to hold others up for
    quiet_s: float = 1.0  # a model that others wait for leaves after this long without a request
    swaps_per_minute: int = 6
    swaps_at_once: int = 2  # of these, so many may follow each other at once; the others are spread over the minute
    tries: int = 2  # how often one request is sent, where no byte of an answer has come


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A model as the platform last described it."""

    name: str
    state: ModelState
    port: int | None = None
    run: str | None = None
    reason: str = ""
    message: str = ""
    resident: bool = False
    blocked_by: tuple[str, ...] = ()
    placeable: bool = True
    retry_after_s: float = 0.0  # of `failed`, and in a window: how long nothing wakes it, from when that is told
    failures: int = 0  # how often it has failed in a row
    window: str = ""  # why it cannot wake: a window has its card


@dataclass(slots=True, kw_only=True)
class Ticket:
    """One request.  `patient`: it may be held.  `wakes`: it is inference.  `what` and `who` are for the diary."""

    id: int
    model: str
    at: float
    patient: bool = True
    wakes: bool = True
    what: str = ""
    who: str = ""
    tries: int = 0
    held_at: float | None = None
    not_before: float = 0.0  # a server that left it without a byte is not asked again before
    absent: bool = False  # once nobody listened where it was to be sent
    excused: bool = False  # it has waited through the end of a server that it was sent to


@dataclass(frozen=True, slots=True)
class Forward:
    ticket: int
    port: int
    run: str | None


@dataclass(frozen=True, slots=True)
class Refuse:
    ticket: int
    status: int
    code: str
    message: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Wake:
    """`ticket` is the request that caused it."""

    model: str
    cause: str
    by: str
    ticket: int | None = None


@dataclass(frozen=True, slots=True)
class Sleep:
    model: str
    cause: str


Action = Forward | Refuse | Wake | Sleep


def seen_of(row: Mapping[str, object]) -> Seen:
    """A row of the platform's table."""
    port, run = row.get("port"), row.get("run_id")
    blocked, failures = row.get("blocked_by"), row.get("failures")
    retry, shut = row.get("retry_after_s"), row.get("window")
    return Seen(
        name=str(row["name"]),
        state=ModelState(str(row["state"])),
        port=port if isinstance(port, int) else None,
        run=str(run) if run else None,
        reason=str(row.get("reason") or ""),
        message=str(row.get("message") or ""),
        resident=bool(row.get("resident")),
        blocked_by=tuple(str(name) for name in blocked) if isinstance(blocked, list) else (),
        placeable=bool(row.get("placeable", True)),
        retry_after_s=float(retry) if isinstance(retry, int | float) else 0.0,
        failures=failures if isinstance(failures, int) else 0,
        window=str(shut["message"]) if isinstance(shut, Mapping) else "",
    )
