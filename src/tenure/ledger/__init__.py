"""THE MEMORY: jobs, attempts, runs and the diary, in SQLite or PostgreSQL.  It never decides.

One state change is one transaction with one event beside it, and folding the events gives the rows (`fold`).  A write
names what its writer saw; a stale writer changes nothing.
"""

from __future__ import annotations

from .cordons import Cordon
from .fold import Folded, fold
from .jobs import JobFilter
from .ledger import Ledger
from .requests import environment_digest
from .rows import AttemptChange, AttemptRow, Change, JobRow, NewAttempt, NewJob, Page, RunRow
from .runs import RunFilter
from .transaction import Transaction
from .windows import WindowRow

__all__ = [
    "AttemptChange",
    "AttemptRow",
    "Change",
    "Cordon",
    "Folded",
    "JobFilter",
    "JobRow",
    "Ledger",
    "NewAttempt",
    "NewJob",
    "Page",
    "RunFilter",
    "RunRow",
    "Transaction",
    "WindowRow",
    "environment_digest",
    "fold",
]
