"""The diary is append-only, in the order of commits, and read by cursor."""

from __future__ import annotations

import pytest

from tenure.domain.errors import HouseFault
from tenure.domain.events import Event, EventKind
from tenure.domain.ids import Instant, JobId, RunId
from tenure.ledger import Ledger, NewJob

T = Instant(1_790_000_000_000_000)


def say(ledger: Ledger, *messages: str, job: str | None = None) -> None:
    with ledger.transaction() as tx:
        for message in messages:
            tx.event(Event(kind=EventKind.POLICY_LOADED, at=T, message=message, job_id=JobId(job) if job else None))


def test_an_event_reads_back(ledger: Ledger) -> None:
    told = Event(
        kind=EventKind.RUN_REAPED, at=T, run_id=RunId("1.1"), job_id=JobId("1"), message="ü \0", data={"a": [1, None, "\0"]}
    )  # fmt: skip
    with ledger.transaction() as tx:
        tx.event(told)
        (seen,) = tx.events()
    (event,) = ledger.events()
    assert event == seen
    assert (event.kind, event.at, event.run_id, event.job_id) == (told.kind, T, "1.1", "1")
    assert (event.message, event.data, event.changes) == ("ü \\x00", told.data, {})


def test_a_reader_goes_on_from_its_cursor(ledger: Ledger) -> None:
    say(ledger, "a", "b")
    say(ledger, "c", job="1")
    first = ledger.events(limit=2)
    assert [e.message for e in first] == ["a", "b"]
    say(ledger, "d")
    rest = ledger.events(after=first[-1].id)
    assert [e.message for e in rest] == ["c", "d"]
    assert ledger.last_event_id() == rest[-1].id
    assert [e.message for e in ledger.events(newest=True, limit=3)] == ["d", "c", "b"]
    assert [e.message for e in ledger.events(job_id="1")] == ["c"]
    assert ledger.events(kinds=[EventKind.JOB_ENDED]) == []
    assert len(ledger.events(kinds=[EventKind.JOB_ENDED, EventKind.POLICY_LOADED])) == 4


def test_rows_change_through_guarded_writes_alone(ledger: Ledger) -> None:
    with pytest.raises(HouseFault), ledger.transaction() as tx:
        tx.event(Event(kind=EventKind.JOB_ENDED, at=T, job_id=JobId("1"), changes={"state": "ended"}))
    assert ledger.last_event_id() == 0


def test_listeners_hear_of_commits_that_wrote_events_and_of_no_others(ledger: Ledger) -> None:
    heard: list[int] = []
    ledger.listen(heard.append)
    say(ledger, "a")
    with ledger.transaction() as tx:
        tx.next_job_number()

    def fail() -> None:
        with ledger.transaction() as tx:
            tx.event(Event(kind=EventKind.POLICY_LOADED, at=T))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with ledger.transaction() as tx:
        tx.add_jobs([NewJob(id=JobId("1"), name="x", spec="{}")], T)
    assert len(heard) == 2
    assert heard == sorted(heard)
    assert heard[-1] == ledger.last_event_id()
