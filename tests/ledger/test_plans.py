"""50,000 jobs page fast because every list walks an index in its own order: no scan, no sorting."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import event

from tenure.domain.ids import Instant
from tenure.domain.lifecycle import JobState
from tenure.ledger import JobFilter, Ledger, RunFilter

LIVE = frozenset(JobState) - {JobState.ENDED}
QUESTIONS: dict[str, tuple[Callable[[Ledger], object], str]] = {
    "newest jobs": (lambda x: x.jobs(), "SCAN jobs"),
    "a later page": (lambda x: x.jobs(cursor="1000"), "INTEGER PRIMARY KEY"),
    "live jobs": (lambda x: x.jobs(JobFilter(states=LIVE)), "jobs_live"),
    "queued jobs": (lambda x: x.jobs(JobFilter(states=frozenset({JobState.QUEUED}))), "jobs_live|jobs_by_state"),
    "running and ended": (
        lambda x: x.jobs(JobFilter(states=frozenset({JobState.RUNNING, JobState.ENDED}))),
        "SCAN jobs",
    ),
    "jobs of any state": (lambda x: x.jobs(JobFilter(states=frozenset(JobState))), "SCAN jobs"),
    "ended jobs": (lambda x: x.jobs(JobFilter(states=frozenset({JobState.ENDED}))), "jobs_by_state"),
    "a project": (lambda x: x.jobs(JobFilter(project="p"), cursor="1000"), "jobs_by_project"),
    "a name": (lambda x: x.jobs(JobFilter(name="n")), "jobs_by_name"),
    "an array": (lambda x: x.array("1"), "jobs_by_array"),
    "one job": (lambda x: x.find_job("1"), "sqlite_autoindex_jobs"),
    "jobs at the start": (lambda x: list(x.live_jobs()), "jobs_live"),
    "attempts at the start": (lambda x: list(x.live_attempts()), "attempts_live"),
    "attempts of a job": (lambda x: x.attempts("1"), "attempts_by_job"),
    "counts": (lambda x: x.counts(), "COVERING INDEX jobs_by_outcome"),
    "newest events": (lambda x: x.events(newest=True), "INTEGER PRIMARY KEY"),
    "events since": (lambda x: x.events(after=9), "INTEGER PRIMARY KEY"),
    "events of a job": (lambda x: x.events(job_id="1"), "events_by_job"),
    "newest runs": (lambda x: x.runs(), "runs_newest"),
    "runs of a job": (lambda x: x.runs(RunFilter(job_id="1")), "runs_by_job"),
    "quiet runs": (lambda x: x.open_runs(seen_before=Instant(5)), "runs_open"),
}


@pytest.fixture
def explained(sqlite_ledger: Ledger) -> list[str]:
    """The plan of every query that the ledger has asked since."""
    plans: list[str] = []

    def explain(connection, cursor, statement, parameters, context, executemany):  # type: ignore[no-untyped-def]
        plans.extend(str(row[3]) for row in cursor.execute("EXPLAIN QUERY PLAN " + statement, parameters).fetchall())

    event.listen(sqlite_ledger._database.reader, "before_cursor_execute", explain)
    return plans


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_list_walks_an_index(sqlite_ledger: Ledger, explained: list[str], question: str) -> None:
    ask, index = QUESTIONS[question]
    ask(sqlite_ledger)
    walks = [plan for plan in explained if "RIGHT PART OF ORDER BY" not in plan]  # sorting ties is no sorting
    assert walks
    for plan in walks:
        assert plan != "SCAN jobs" or "SCAN jobs" in index  # by its key, newest first
        assert any(name in plan for name in index.split("|")), explained
