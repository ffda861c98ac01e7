"""What looks at the world and changes nothing: plain values, ready for the wire."""

from .advice import model_advice
from .capacity import capacity, capacity_at_rest
from .cards import card_timeline, cards
from .events import events, model_events
from .jobs import counts, has_ended, jobs, show
from .logs import LogSource, log
from .models import models
from .policy import check_policy, policy
from .queues import queues
from .runs import diff, run, runs
from .status import status
from .whatif import try_policy, try_policy_at_rest
from .why import why
from .windows import window, window_timeline, windows

__all__ = [
    "LogSource",
    "capacity",
    "capacity_at_rest",
    "card_timeline",
    "cards",
    "check_policy",
    "counts",
    "diff",
    "events",
    "has_ended",
    "jobs",
    "log",
    "model_advice",
    "model_events",
    "models",
    "policy",
    "queues",
    "run",
    "runs",
    "show",
    "status",
    "try_policy",
    "try_policy_at_rest",
    "why",
    "window",
    "window_timeline",
    "windows",
]
