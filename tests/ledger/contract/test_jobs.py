"""Jobs are added whole, moved only as the lifecycle allows, and only by writers who saw them as they are."""

from __future__ import annotations

import pytest

from tenure.domain.errors import HouseFault, IllegalTransition, InvalidRequest, NotFound, StaleWrite, Unavailable
from tenure.domain.events import EventKind
from tenure.domain.ids import Instant, JobId
from tenure.domain.lifecycle import TRANSITIONS, JobEvent, JobState, Outcome
from tenure.ledger import Change, JobFilter, JobRow, Ledger, NewJob, fold

T = Instant(1_790_000_000_000_000)
E, S = JobEvent, JobState


class Crash(Exception):
    """Whatever may happen inside a transaction."""


def new(job: str, **more: object) -> NewJob:
    return NewJob(id=JobId(job), **({"name": "train", "spec": '{"argv":["true"]}'} | more))  # type: ignore[arg-type]


def submit(ledger: Ledger, *jobs: NewJob) -> list[JobRow]:
    with ledger.transaction() as tx:
        return tx.add_jobs(jobs, T)


def change(job: str, event: JobEvent | None, saw: JobState | None, **more: object) -> Change:
    return Change(job_id=JobId(job), event=event, kind=EventKind.JOB_PENDING, at=T, expect_state=saw, **more)  # type: ignore[arg-type]


def test_what_was_submitted_reads_back(ledger: Ledger) -> None:
    given = new(
        "1", name='训练 "x" $(rm) \n', project="vision", owner="ada", queue="q", cluster_queue="general", priority=-5,
        priority_class="batch", env_digest="e", labels={"a": "ü"}, fingerprint={"commit": "c", "dirty": ["x"]}, held=True,
        reason="OnHold", message="held", not_before=Instant(5), retry_of=JobId("0"),
        submitted_at=Instant(7),
    )  # fmt: skip
    (row,) = submit(ledger, given)
    assert row == ledger.job("1")
    for name in NewJob.__slots__:
        if name != "spec":
            assert getattr(row, name) == getattr(given, name)
    assert (row.state, row.revision, row.attempts) == (S.QUEUED, 1, 0)
    assert [event.at for event in ledger.events()] == [7]
    assert ledger.spec(row.spec_digest) == given.spec
    assert submit(ledger, new("2"))[0].submitted_at == T


def test_equal_specs_are_kept_once_and_different_ones_apart(ledger: Ledger) -> None:
    a, b, c = submit(ledger, new("1"), new("2"), new("3", spec='{"other":1}'))
    (d,) = submit(ledger, new("4"))
    assert a.spec_digest == b.spec_digest == d.spec_digest != c.spec_digest


def test_text_that_a_database_cannot_hold_is_shown_instead(ledger: Ledger) -> None:
    (row,) = submit(ledger, new("1", name="a\0b\udcffc", labels={"k": "\0\udcff"}))
    assert row == ledger.job("1")
    assert row.name == "a\\x00b\\udcffc"
    assert row.labels == {"k": "\0\udcff"}


def test_a_failure_inside_leaves_nothing(ledger: Ledger) -> None:
    def fail() -> None:
        with ledger.transaction() as tx:
            tx.add_jobs([new("1")], T)
            assert tx.job("1").state is S.QUEUED
            raise Crash

    with pytest.raises(Crash):
        fail()
    assert ledger.find_job("1") is None
    assert ledger.events() == []


@pytest.mark.parametrize(("state", "event"), [(s, e) for s in JobState for e in JobEvent])
def test_only_the_steps_of_the_table_are_taken(sqlite_ledger: Ledger, state: JobState, event: JobEvent) -> None:
    ledger = sqlite_ledger
    submit(ledger, new("1"))
    for step, saw in _way_to(state):
        with ledger.transaction(durable=False) as tx:
            tx.move(change("1", step, saw))
    before = ledger.job("1")
    assert before.state is state
    if (state, event) in TRANSITIONS:
        with ledger.transaction(durable=False) as tx:
            row = tx.move(change("1", event, state))
        assert row.state is TRANSITIONS[state, event]
        assert row.revision == before.revision + 1
        assert row == ledger.job("1")
    else:
        with pytest.raises(IllegalTransition), ledger.transaction(durable=False) as tx:
            tx.move(change("1", event, state))
        assert ledger.job("1") == before


def _way_to(state: JobState) -> list[tuple[JobEvent, JobState]]:
    ways: dict[JobState, list[tuple[JobEvent, JobState]]] = {S.QUEUED: []}
    while state not in ways:
        for (saw, event), after in TRANSITIONS.items():
            if saw in ways:
                ways.setdefault(after, [*ways[saw], (event, saw)])
    return ways[state]


@pytest.mark.parametrize(
    "saw",
    [{"expect_state": S.RUNNING}, {"expect_state": S.QUEUED, "expect_revision": 7}, {"expect_state": S.QUEUED, "expect_attempts": 1}],
)  # fmt: skip
def test_a_stale_writer_changes_nothing(ledger: Ledger, saw: dict[str, object]) -> None:
    submit(ledger, new("1"))
    stale = Change(job_id=JobId("1"), event=E.CANCEL, kind=EventKind.JOB_ENDED, at=T, **saw)  # type: ignore[arg-type]
    with pytest.raises(StaleWrite), ledger.transaction() as tx:
        tx.move(stale)
    with ledger.transaction() as tx:
        (result,) = tx.move_many([stale])
    assert isinstance(result, StaleWrite)
    assert ledger.job("1").revision == 1
    assert [e.kind for e in ledger.events()] == [EventKind.JOB_SUBMITTED]


def test_a_batch_moves_what_it_saw_and_names_the_rest(ledger: Ledger) -> None:
    submit(ledger, *(new(str(n)) for n in range(1, 6)))
    with ledger.transaction() as tx:
        results = tx.move_many(
            [
                change("1", E.ADMIT, S.QUEUED, fields={"admitted_at": 7, "reservation": {"cards": [1]}}),
                change("2", E.CANCEL, S.QUEUED, fields={"outcome": Outcome.CANCELLED}),
                change("3", E.START, S.ADMITTED),
                change("1", E.START, S.ADMITTED, fields={"started_at": 8}),
                change("4", None, S.QUEUED, fields={"reason": "WaitingForQuota"}),
                change("1", E.FINISH, S.QUEUED),
                change("5", None, None, message="only a line"),
            ]
        )
    assert [isinstance(r, StaleWrite) for r in results] == [False, False, True, False, False, True, False]
    one, two, four = ledger.job("1"), ledger.job("2"), ledger.job("4")
    assert (one.state, one.admitted_at, one.started_at, one.revision) == (S.RUNNING, 7, 8, 3)
    assert one.reservation == {"cards": [1]}
    assert (two.state, two.outcome) == (S.ENDED, Outcome.CANCELLED)
    assert (four.state, four.reason, four.revision) == (S.QUEUED, "WaitingForQuota", 2)
    assert ledger.job("5").revision == 1
    assert results[3] == one
    assert fold(ledger.events()).jobs == {r.id: r for r in ledger.jobs().items}


def test_two_steps_of_one_job_are_written_in_their_order(ledger: Ledger) -> None:
    submit(ledger, new("1"), new("2"))
    with (
        ledger.transaction() as tx
    ):  # the first and the last set the same columns and are written together where they may
        _, _, last = tx.move_many(
            [
                change("2", E.ADMIT, S.QUEUED),
                change("1", None, S.QUEUED, fields={"reason": "x"}),
                change("1", E.ADMIT, S.QUEUED),
            ]
        )
    assert ledger.job("1") == last
    assert (ledger.job("1").state, ledger.job("1").reason, ledger.job("1").revision) == (S.ADMITTED, "x", 3)


def test_one_transaction_builds_on_its_own_steps_and_not_on_refused_ones(ledger: Ledger) -> None:
    submit(ledger, new("1"), new("2"))
    with ledger.transaction() as tx:
        tx.move(change("1", E.ADMIT, S.QUEUED))
        with pytest.raises(IllegalTransition):  # after its own first step was made, and written because of the second
            tx.move_many(
                [
                    change("1", None, S.ADMITTED, fields={"reason": "a"}),
                    change("1", None, S.ADMITTED, fields={"reason": "b"}),
                    change("2", E.START, S.QUEUED),
                ]
            )
        last = tx.move(change("1", E.START, S.ADMITTED))
    assert last == ledger.job("1")
    assert last.state is S.RUNNING


def test_a_change_of_what_is_fixed_or_unknown_is_a_fault(ledger: Ledger) -> None:
    submit(ledger, new("1"))
    for fields in ({"id": "2"}, {"state": "ended"}, {"revision": 9}, {"nmae": "x"}):
        with pytest.raises(HouseFault), ledger.transaction() as tx:
            tx.move(change("1", None, S.QUEUED, fields=fields))
    with pytest.raises(NotFound), ledger.transaction() as tx:
        tx.move(change("99", None, None))
    with pytest.raises(HouseFault, match="saw"), ledger.transaction() as tx:
        tx.move(change("1", E.CANCEL, None))
    assert ledger.job("1").revision == 1


def test_an_id_is_taken_once(ledger: Ledger) -> None:
    submit(ledger, new("1"))
    with pytest.raises(HouseFault), ledger.transaction() as tx:
        tx.add_jobs([new("2"), new("1")], T)
    assert ledger.find_job("2") is None


def test_numbers_are_consecutive_and_a_rolled_back_one_is_given_again(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        assert (tx.next_job_number(), tx.next_job_number(5), tx.next_job_number()) == (1, 2, 7)

    def fail() -> None:
        with ledger.transaction() as tx:
            assert tx.next_job_number() == 8
            raise Crash

    with pytest.raises(Crash):
        fail()
    with ledger.transaction() as tx:
        assert tx.next_job_number() == 8


def test_pages_are_newest_first_and_meet_without_gap(ledger: Ledger) -> None:
    submit(ledger, *(new(str(n), name="odd" if n % 2 else "Even_%", project=f"p{n % 3}") for n in range(1, 26)))
    seen, cursor = [], None
    while True:
        page = ledger.jobs(limit=10, cursor=cursor)
        seen += [row.id for row in page.items]
        cursor = page.next
        if cursor is None:
            break
        submit(ledger, new(f"late-{cursor}"))  # what comes meanwhile is newer: it moves nothing
    assert seen == [str(n) for n in range(25, 0, -1)]
    for wrong in ("x", "-1", "²", "9" * 19, "9" * 5000):
        with pytest.raises(InvalidRequest):
            ledger.jobs(cursor=wrong)


def test_filters_hold_together(ledger: Ledger) -> None:
    submit(ledger, *(new(str(n), name="odd" if n % 2 else "Even_%", project=f"p{n % 3}") for n in range(1, 13)))
    with ledger.transaction() as tx:
        tx.move_many([change(str(n), E.CANCEL, S.QUEUED, fields={"outcome": Outcome.CANCELLED}) for n in (1, 2, 3)])

    def ids(**which: object) -> list[str]:
        return [row.id for row in ledger.jobs(JobFilter(**which)).items]  # type: ignore[arg-type]

    assert ids(states=frozenset({S.ENDED})) == ["3", "2", "1"]
    assert ids(states=frozenset(JobState) - {S.ENDED}, project="p1") == ["10", "7", "4"]
    assert ids(states=frozenset({S.QUEUED, S.ENDED}), name="odd", project="p1") == ["7", "1"]
    assert ids(outcome=Outcome.CANCELLED, name="*E*n_%") == ["2"]
    assert ids(name="*_") == []
    submit(ledger, new("99", name="Übung 1"))
    assert ids(name="Übung*") == ids(name="ÜBUNG*") == ["99"]
    assert ids(states=frozenset()) == []
    assert ledger.counts() == {(S.ENDED, Outcome.CANCELLED): 3, (S.QUEUED, None): 10}


def test_live_jobs_leave_out_the_ended(ledger: Ledger) -> None:
    submit(ledger, *(new(str(n)) for n in range(1, 501)))
    with ledger.transaction() as tx:
        tx.move_many([change(str(n), E.CANCEL, S.QUEUED) for n in range(1, 501, 2)])
    assert [row.id for row in ledger.live_jobs()] == [str(n) for n in range(2, 501, 2)]
    stream = ledger.live_jobs()
    assert next(stream).id == "2"
    del stream  # given up half-way: its connection comes back
    assert ledger.job("2").state is S.QUEUED


def test_an_array_is_its_tasks_in_order(ledger: Ledger) -> None:
    submit(ledger, *(new(f"7_{i}", array_id=JobId("7"), array_index=i, array_limit=2) for i in (3, 1, 10)), new("8"))
    with ledger.transaction() as tx:
        tx.move(change("7_3", E.CANCEL, S.QUEUED, fields={"outcome": Outcome.CANCELLED}))
    assert [row.id for row in ledger.array("7")] == ["7_1", "7_3", "7_10"]
    assert ledger.counts(array="7") == {(S.QUEUED, None): 2, (S.ENDED, Outcome.CANCELLED): 1}
    assert ledger.array("9") == []


def test_transactions_of_one_thread_do_not_nest(ledger: Ledger) -> None:
    with ledger.transaction(), pytest.raises(HouseFault, match="already open"), ledger.transaction():
        pass
    submit(ledger, new("1"))


def test_a_closed_ledger_says_so(ledger: Ledger) -> None:
    ledger.close()
    with pytest.raises(Unavailable, match="closed"):
        ledger.find_job("1")
    with pytest.raises(Unavailable, match="closed"), ledger.transaction():
        pass
    ledger.close()


def test_a_spec_that_a_crash_took_back_is_written_again(ledger: Ledger) -> None:
    """What is remembered of specs is what was committed, never what a transaction only meant to write."""
    spec = '{"crash": 1}'

    def crash() -> None:
        with ledger.transaction() as tx:
            tx.add_jobs([NewJob(id=JobId("crash"), name="crash", spec=spec)], Instant(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        crash()
    for job in ("one", "two"):
        with ledger.transaction() as tx:
            (row,) = tx.add_jobs([NewJob(id=JobId(job), name=job, spec=spec)], Instant(2))
        assert ledger.spec(row.spec_digest) == spec
