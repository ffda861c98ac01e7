"""The shapes on the wire, for the OpenAPI document and for nothing inside: rooms pass values, not these.

Answers are written by `control.views` and are not validated again on their way out; the tests hold them against these
models, so that the document stays honest.
"""

from __future__ import annotations

from .base import Problem
from .cards import Drain
from .jobs import Cancel, JobSubmission, Note, Release, Retry
from .models import Report, Sleep, Wake
from .policy import CheckPolicy, StopDaemon, TryPolicy
from .tokens import ChangeToken, CheckToken, NewToken
from .windows import ClaimWindow, RenewWindow

__all__ = ["BODIES"]

BODIES = (
    JobSubmission,
    Cancel,
    Release,
    Retry,
    Drain,
    ClaimWindow,
    RenewWindow,
    Note,
    Wake,
    Sleep,
    Report,
    TryPolicy,
    StopDaemon,
    CheckPolicy,
    NewToken,
    ChangeToken,
    CheckToken,
    Problem,
)
"""What no endpoint declares as its answer, and the document has to describe all the same."""
