"""Windows on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, StrictInt

from .base import Loose, Strict

__all__ = ["ClaimWindow", "RenewWindow", "Window"]


class Window(Loose):
    """A claim of a whole card."""

    id: str = Field(examples=["w3"])
    card: str
    owner: str
    state: Literal["scheduled", "waiting", "active", "ended"]
    reason: str = Field(description="Why it ended: Lapsed, Released, JobEnded, JobWaits, OwnerGone, CardGone.")
    message: str = Field(description="What it waits for, what it holds, or how it ended.")
    job_id: str | None = Field(description="The job that it was claimed for.")
    length_s: float = Field(description="How long it lasts from its opening.")
    including_resident: bool
    lease_s: float | None = Field(description="It ends when it was not renewed for this long.")
    claimed_at: datetime
    begin_at: datetime | None
    opened_at: datetime | None
    ends_at: datetime | None
    ended_at: datetime | None


class ClaimWindow(Strict):
    length: str | StrictInt | None = Field(
        default=None, alias="for", description="How long; two hours otherwise.", examples=["2h"]
    )
    card: str | None = Field(default=None, description="The one that is free soonest, otherwise.")
    begin: str | None = Field(default=None, examples=["now+1hour", "2026-11-29T21:30:00Z"])
    including_resident: bool = Field(default=False, description="Resident work has to leave, too.")
    wait: bool = Field(default=False, description="Take a place in line where it is not free: else 409.")
    lease_s: float | None = Field(default=None, description="Ends when it is not renewed for so many seconds.")


class RenewWindow(Strict):
    keep: bool = Field(default=False, description="From now on it lasts without being renewed.")
