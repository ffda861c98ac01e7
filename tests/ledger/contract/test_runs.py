"""A run is what was read of its record last; lists page newest first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tenure.domain.errors import InvalidRequest, NotFound
from tenure.domain.ids import Instant, JobId, RunId
from tenure.domain.lifecycle import Outcome
from tenure.ledger import Ledger, RunFilter, RunRow


def run(name: str, opened: int, **more: object) -> RunRow:
    return RunRow(run_id=RunId(name), name="digits", opened_at=Instant(opened), seen_at=Instant(opened), **more)  # type: ignore[arg-type]


def test_a_later_reading_replaces_an_earlier_one(ledger: Ledger) -> None:
    first = run("1.1", 5, job_id=JobId("1"), project="p", run_dir="/é/1.1", read_to=10, summary={"loss": [0.5, 1e-9]})
    with ledger.transaction() as tx:
        tx.put_run(first)
    assert ledger.run("1.1") == first
    second = replace(first, outcome=Outcome.COMPLETED, closed_at=Instant(9), read_to=99, summary={"loss": 0}, retry_of=RunId("1.0"))  # fmt: skip
    with ledger.transaction() as tx:
        tx.put_run(second)
    assert ledger.run("1.1") == second
    third = replace(second, read_to=120)
    with ledger.transaction() as tx:
        tx.put_runs([first, run("2.1", 6), third])  # in order: of one run the last reading stays
    assert (ledger.run("1.1"), ledger.run("2.1")) == (third, run("2.1", 6))
    with pytest.raises(NotFound):
        ledger.run("1.2")


def test_pages_are_newest_first_and_meet_without_gap(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        for n in range(25):  # many were opened in the same microsecond
            tx.put_run(run(f"r{n:02}", n // 10, project=f"p{n % 2}", outcome=Outcome.FAILED if n % 5 == 0 else None))
    seen, cursor = [], None
    while True:
        page = ledger.runs(limit=7, cursor=cursor)
        seen += [r.run_id for r in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert seen == [f"r{n:02}" for n in range(24, -1, -1)]
    for wrong in ("x", "5", "x:1", "9" * 19 + ":1"):
        with pytest.raises(InvalidRequest):
            ledger.runs(cursor=wrong)


def test_filters_hold_together(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        for n in range(12):
            tx.put_run(run(f"{n}.1", n, job_id=JobId(str(n)), project=f"p{n % 2}", outcome=Outcome.FAILED if n % 3 == 0 else None))  # fmt: skip

    def ids(**which: object) -> list[str]:
        return [r.run_id for r in ledger.runs(RunFilter(**which)).items]  # type: ignore[arg-type]

    assert ids(project="p1", outcome=Outcome.FAILED) == ["9.1", "3.1"]
    assert ids(project="p1", open=True) == ["11.1", "7.1", "5.1", "1.1"]
    assert ids(project="p0", open=False) == ["6.1", "0.1"]
    assert ids(job_id="4") == ["4.1"]
    assert ids(name="other") == []
    assert [r.run_id for r in ledger.open_runs(seen_before=Instant(5))] == ["1.1", "2.1", "4.1"]
