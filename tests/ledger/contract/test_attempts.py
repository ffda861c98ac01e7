"""Attempts only go forward, under the eyes of a writer who saw their state, and keep who took their place."""

from __future__ import annotations

import pytest

from tenure.domain.attempt import AttemptState
from tenure.domain.errors import HouseFault, NotFound, StaleWrite
from tenure.domain.events import EventKind
from tenure.domain.ids import Instant, JobId, RunId
from tenure.domain.lifecycle import Outcome
from tenure.ledger import AttemptChange, Ledger, NewAttempt, fold

T = Instant(1_790_000_000_000_000)
S = AttemptState


def change(run: str, saw: AttemptState | tuple[AttemptState, ...], **fields: object) -> AttemptChange:
    return AttemptChange(run_id=RunId(run), kind=EventKind.ATTEMPT_STARTED, at=T, expect_state=saw, fields=fields)


def add(ledger: Ledger, *numbers: int, job: str = "1") -> None:
    with ledger.transaction() as tx:
        tx.add_attempts([NewAttempt(run_id=RunId(f"{job}.{n}"), job_id=JobId(job), number=n) for n in numbers], T)


def test_what_was_written_reads_back(ledger: Ledger) -> None:
    new = NewAttempt(
        run_id=RunId("1.2"), job_id=JobId("1"), number=2, backend="slurm", retry_of=RunId("1.1"),
        placement=[{"card": "GPU-1", "ranks": [0, 1]}], processes=2,
    )  # fmt: skip
    with ledger.transaction() as tx:
        row = tx.add_attempt(new, T)
    assert row == ledger.attempt("1.2")
    assert (row.state, row.placement, row.created_at, row.processes) == (S.STARTING, new.placement, T, 2)
    with ledger.transaction() as tx:
        row = tx.update_attempt(
            change(
                "1.2", S.STARTING, state=S.ENDED, outcome=Outcome.INTERRUPTED, exit_code=143, signal=15, started_at=5, ended_at=9,
                reason="Preempted", message="stderr said \0 and \udcff", evicted_reason="Preempted", evicted_by="9", evicted_at=8,
                evicted_message="to make room", failed_rank=1, survivors=[{"pid": 4, "started": 2, "command": "x"}],
            )
        )  # fmt: skip
    assert row == ledger.attempt("1.2")
    assert (row.state, row.outcome, row.message) == (S.ENDED, Outcome.INTERRUPTED, "stderr said \\x00 and \\udcff")
    assert fold(ledger.events()).attempts == {row.run_id: row}


def test_a_stale_writer_changes_nothing(ledger: Ledger) -> None:
    add(ledger, 1)
    with pytest.raises(StaleWrite), ledger.transaction() as tx:
        tx.update_attempt(change("1.1", S.RUNNING, exit_code=1))
    with ledger.transaction() as tx:
        stale, moved = tx.update_attempts(
            [change("1.1", S.STOPPING, exit_code=1), change("1.1", (S.STARTING, S.RUNNING), state=S.RUNNING)]
        )
    assert isinstance(stale, StaleWrite)
    assert moved == ledger.attempt("1.1")
    assert ledger.attempt("1.1").exit_code is None


def test_two_changes_of_one_attempt_are_written_in_their_order(ledger: Ledger) -> None:
    add(ledger, 1, 2)
    with ledger.transaction() as tx:
        _, _, last = tx.update_attempts(
            [
                change("1.2", S.STARTING, exit_code=1),
                change("1.1", S.STARTING, state=S.RUNNING),
                change("1.1", S.RUNNING, exit_code=2),
            ]
        )
    assert ledger.attempt("1.1") == last
    assert (ledger.attempt("1.1").state, ledger.attempt("1.1").exit_code) == (S.RUNNING, 2)


def test_an_attempt_is_created_once(ledger: Ledger) -> None:
    add(ledger, 1)
    with pytest.raises(StaleWrite), ledger.transaction() as tx:
        tx.add_attempt(NewAttempt(run_id=RunId("1.1"), job_id=JobId("1"), number=1), T)
    assert len(ledger.events()) == 1


def test_attempts_never_go_back(ledger: Ledger) -> None:
    add(ledger, 1)
    with ledger.transaction() as tx:
        tx.update_attempts([change("1.1", S.STARTING, state=S.RUNNING), change("1.1", S.RUNNING, state=S.ENDED)])
    with pytest.raises(HouseFault, match="forward"), ledger.transaction() as tx:
        tx.update_attempt(change("1.1", S.ENDED, state=S.RUNNING))
    with ledger.transaction() as tx:  # what is learned late may still be written
        tx.update_attempt(change("1.1", S.ENDED, exit_code=3))
    assert (ledger.attempt("1.1").state, ledger.attempt("1.1").exit_code) == (S.ENDED, 3)


def test_a_fault_names_what_it_cannot_set(ledger: Ledger) -> None:
    add(ledger, 1)
    with pytest.raises(HouseFault, match="job_id"), ledger.transaction() as tx:
        tx.update_attempt(change("1.1", S.STARTING, job_id="2"))
    with pytest.raises(NotFound), ledger.transaction() as tx:
        tx.update_attempt(change("1.9", S.STARTING, exit_code=1))


def test_lists_are_in_order_and_live_ones_have_not_ended(ledger: Ledger) -> None:
    add(ledger, 10, 2, 1)
    add(ledger, *range(1, 600), job="2")
    with ledger.transaction() as tx:
        tx.update_attempt(change("1.1", S.STARTING, state=S.ENDED))
        tx.update_attempts([change(f"2.{n}", S.STARTING, state=S.ENDED) for n in range(1, 300)])
    assert [a.number for a in ledger.attempts("1")] == [1, 2, 10]
    live = [a.run_id for a in ledger.live_attempts()]
    assert len(live) == len(set(live))
    assert set(live) == {"1.2", "1.10", *(f"2.{n}" for n in range(300, 600))}
    found = ledger.attempts_of(["1", "2", "3"])
    assert [a.number for a in found["1"]] == [1, 2, 10]
    assert (len(found["2"]), found.keys()) == (599, {"1", "2"})
