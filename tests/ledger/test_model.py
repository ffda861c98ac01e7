"""The ledger against a dict, on both databases, with a crash between any two writes.

A transaction either happened as the model says or not at all; after every step the rows are the model's, and folding
the diary gives the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tenure.domain.attempt import AttemptState
from tenure.domain.errors import Conflict, Unavailable
from tenure.domain.events import EventKind
from tenure.domain.ids import Instant, JobId, RunId, run_id
from tenure.domain.lifecycle import TRANSITIONS, JobEvent, JobState, Outcome
from tenure.ledger import (
    AttemptChange,
    AttemptRow,
    Change,
    JobFilter,
    JobRow,
    Ledger,
    NewAttempt,
    NewJob,
    Transaction,
    fold,
)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
VALUES = st.dictionaries(TEXT, st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), TEXT), max_size=3)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "reason": TEXT,
        "message": TEXT,
        "held": st.booleans(),
        "priority": st.integers(-(2**31), 2**31),
        "reservation": st.none() | VALUES,
        "not_before": st.none() | st.integers(0, 2**60),
        "outcome": st.none() | st.sampled_from(Outcome),
        "exit_code": st.none() | st.integers(0, 255),
        "attempts": st.integers(0, 9),
        "labels": st.dictionaries(TEXT, TEXT, max_size=2),
    },
)
ATTEMPT_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "reason": TEXT,
        "exit_code": st.none() | st.integers(0, 255),
        "evicted_by": st.none() | TEXT,
        "placement": st.none() | st.lists(VALUES, max_size=2),
        "survivors": st.lists(VALUES, max_size=2),
        "processes": st.none() | st.integers(1, 8),
    },
)
ATTEMPT_STATES = (AttemptState.STARTING, AttemptState.RUNNING, AttemptState.STOPPING, AttemptState.ENDED)


class World:
    """What should be there: rows by name, lines told, answers given, numbers handed out."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, JobRow] = {}
        self.attempts: dict[RunId, AttemptRow] = {}
        self.answers: dict[str, tuple[str, str]] = {}
        self.number = 0
        self.lines = 0
        self.clock = 0

    def now(self) -> Instant:
        self.clock += 1
        return Instant(self.clock)


class Crash(Exception):
    pass


Step = Callable[[Transaction, World], None]
PICK = st.integers(0, 50)


def submit(n: int, name: str, labels: dict[str, str], held: bool, spec: dict[str, Any]) -> Step:
    def step(tx: Transaction, world: World) -> None:
        first, at = tx.next_job_number(n), world.now()
        assert first == world.number + 1
        world.number += n
        new = [NewJob(id=JobId(str(first + i)), name=name, spec=repr(spec), labels=labels, held=held) for i in range(n)]
        for row in tx.add_jobs(new, at):
            assert row.seq == int(row.id)
            assert (row.name, row.labels, row.held, row.submitted_at) == (name, labels, held, at)
            world.jobs[row.id] = row
            world.lines += 1

    return step


def move(batch: list[tuple[int, JobEvent | None, dict[str, object], bool]]) -> Step:
    """One batch; each part names a job, a step (or the nearest legal one; None: a note), fields, and whether it is late."""

    def step(tx: Transaction, world: World) -> None:
        changes: list[Change] = []
        expected: list[JobRow | None] = []
        rows, at = dict(world.jobs), world.now()
        for pick, event, fields, late in batch:
            row = rows[sorted(rows)[pick % len(rows)]]
            legal = [e for (s, e) in TRANSITIONS if s is row.state]
            taken = None if event is None or not legal else event if event in legal else legal[pick % len(legal)]
            changes.append(
                Change(
                    job_id=row.id,
                    event=taken,
                    kind=EventKind.JOB_PENDING,
                    at=at,
                    expect_state=row.state,
                    expect_revision=row.revision - late,
                    fields=fields,
                    message="m",
                    data={"n": pick},
                )
            )
            if late:
                expected.append(None)
                continue
            after = fields | ({"state": TRANSITIONS[row.state, taken]} if taken else {})
            if after:
                row = rows[row.id] = replace(row, revision=row.revision + 1, **after)  # type: ignore[arg-type]
            expected.append(row)
            world.lines += 1
        results = tx.move_many(changes)
        assert [r if isinstance(r, JobRow) else None for r in results] == expected
        world.jobs = rows

    return step


def move_with_a_wrong_idea(pick: int, event: JobEvent, state: JobState) -> Step:
    """Illegal or stale: refused, and the transaction may go on without it."""

    def step(tx: Transaction, world: World) -> None:
        row = world.jobs[sorted(world.jobs)[pick % len(world.jobs)]]
        if row.state is state and (state, event) in TRANSITIONS:
            return
        with pytest.raises(Conflict):
            tx.move(Change(job_id=row.id, event=event, kind=EventKind.JOB_ENDED, at=Instant(0), expect_state=state))

    return step


def begin_attempt(pick: int, placement: object) -> Step:
    def step(tx: Transaction, world: World) -> None:
        job, at = sorted(world.jobs)[pick % len(world.jobs)], world.now()
        number = 1 + sum(a.job_id == job for a in world.attempts.values())
        row = tx.add_attempt(NewAttempt(run_id=run_id(job, number), job_id=job, number=number, placement=placement), at)
        assert (row.placement, row.state, row.created_at) == (placement, AttemptState.STARTING, at)
        world.attempts[row.run_id] = row
        world.lines += 1

    return step


def change_attempts(batch: list[tuple[int, int, dict[str, object], bool]]) -> Step:
    def step(tx: Transaction, world: World) -> None:
        changes: list[AttemptChange] = []
        expected: list[AttemptRow | None] = []
        rows, at = dict(world.attempts), world.now()
        for pick, to, fields, late in batch if rows else ():
            row = rows[sorted(rows)[pick % len(rows)]]
            others = tuple(state for state in ATTEMPT_STATES if state is not row.state)
            after = fields | {"state": ATTEMPT_STATES[max(to, ATTEMPT_STATES.index(row.state))]}
            changes.append(
                AttemptChange(
                    run_id=row.run_id,
                    kind=EventKind.ATTEMPT_STARTED,
                    at=at,
                    expect_state=others if late else row.state,
                    fields=after,
                )
            )
            if late:
                expected.append(None)
                continue
            row = rows[row.run_id] = replace(row, **after)  # type: ignore[arg-type]
            expected.append(row)
            world.lines += 1
        results = tx.update_attempts(changes)
        assert [r if isinstance(r, AttemptRow) else None for r in results] == expected
        world.attempts = rows

    return step


def answer(key: str, request: str) -> Step:
    def step(tx: Transaction, world: World) -> None:
        known = world.answers.get(key)
        if known is None:
            assert tx.idempotent("s", key, request) is None
            world.answers[key] = (request, f"answer {world.number}")
            tx.remember("s", key, request, f"answer {world.number}", Instant(1))
        elif known[0] == request:
            assert tx.idempotent("s", key, request) == known[1]
        else:
            with pytest.raises(Conflict):
                tx.idempotent("s", key, request)

    return step


LATE = st.sampled_from([False, False, False, True])
MOVES = st.lists(st.tuples(PICK, st.none() | st.sampled_from(JobEvent), FIELDS, LATE), min_size=1, max_size=6)
STEP = st.one_of(
    st.builds(submit, st.integers(1, 3), TEXT, st.dictionaries(TEXT, TEXT, max_size=2), st.booleans(), VALUES),
    st.builds(move, MOVES),
    st.builds(move_with_a_wrong_idea, PICK, st.sampled_from(JobEvent), st.sampled_from(JobState)),
    st.builds(begin_attempt, PICK, st.none() | st.lists(VALUES, max_size=2)),
    st.builds(
        change_attempts, st.lists(st.tuples(PICK, st.integers(0, 3), ATTEMPT_FIELDS, LATE), min_size=1, max_size=4)
    ),
    st.builds(answer, st.sampled_from("abc"), st.sampled_from("xy")),
)
STEPS = st.lists(STEP, min_size=1, max_size=5)


class LedgerMachine(RuleBasedStateMachine):
    """A rule is a transaction: it commits, crashes between two of its writes, or loses its connection there."""

    new_ledger: Callable[[], Ledger]
    break_connection: Callable[[Ledger], None]

    @initialize()
    def begin(self) -> None:
        self.ledger = type(self).new_ledger()
        self.world = World()
        self.commit(
            [submit(4, "first", {}, False, {}), begin_attempt(0, None), begin_attempt(1, None), begin_attempt(0, [])],
            True,
        )

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()

    @rule(steps=STEPS, durable=st.booleans())
    def commit(self, steps: list[Step], durable: bool) -> None:
        world = deepcopy(self.world)
        with self.ledger.transaction(durable) as tx:
            for step in steps:
                step(tx, world)
        self.world = world

    @rule(steps=STEPS)
    def crash_between_two_writes(self, steps: list[Step]) -> None:
        def crash() -> None:
            world = deepcopy(self.world)
            with self.ledger.transaction() as tx:
                for step in steps:
                    step(tx, world)
                raise Crash

        with pytest.raises(Crash):
            crash()

    @rule(before=STEPS, after=STEPS)
    def lose_the_connection_between_two_writes(self, before: list[Step], after: list[Step]) -> None:
        def lose() -> None:
            world = deepcopy(self.world)
            with self.ledger.transaction() as tx:
                for step in before:
                    step(tx, world)
                type(self).break_connection(self.ledger)
                for step in after:
                    step(tx, world)
                tx.next_job_number()

        with pytest.raises(Unavailable):
            lose()

    @invariant()
    def rows_are_the_models(self) -> None:
        world, ledger = self.world, self.ledger
        jobs = {row.id: row for row in ledger.jobs(limit=1000).items}
        attempts = {a.run_id: a for tries in ledger.attempts_of(list(jobs)).values() for a in tries}
        assert jobs == world.jobs
        assert attempts == world.attempts
        assert {row.id for row in ledger.live_jobs()} == {j.id for j in jobs.values() if j.state is not JobState.ENDED}
        assert {a.run_id for a in ledger.live_attempts()} == {a.run_id for a in attempts.values() if a.state != "ended"}
        ended = ledger.jobs(JobFilter(states=frozenset({JobState.ENDED})), limit=1000)
        assert [j.id for j in ended.items] == [j.id for j in jobs.values() if j.state is JobState.ENDED]

    @invariant()
    def folding_the_diary_gives_the_rows(self) -> None:
        diary = self.ledger.events(limit=100_000)
        assert len(diary) == self.world.lines
        folded = fold(diary)
        assert folded.jobs == self.world.jobs
        assert folded.attempts == self.world.attempts


def _run(new_ledger: Callable[[], Ledger], break_connection: Callable[[Ledger], None], *, examples: int) -> None:
    machine = type("Machine", (LedgerMachine,), {"new_ledger": staticmethod(new_ledger), "break_connection": staticmethod(break_connection)})  # fmt: skip
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=12, deadline=None, derandomize=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )  # fmt: skip


@pytest.fixture
def numbers() -> Iterator[int]:
    return iter(range(10_000))


def test_sqlite_is_the_model(tmp_path: Path, numbers: Iterator[int]) -> None:
    def break_connection(ledger: Ledger) -> None:
        connection = ledger._database._open
        assert connection is not None
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.close()  # uncommitted work goes with it, as with the process

    _run(lambda: Ledger.open(tmp_path / f"{next(numbers)}.db"), break_connection, examples=25)


def test_postgresql_is_the_model(postgres: str, postgres_url: Callable[[], str]) -> None:
    def break_connection(ledger: Ledger) -> None:
        connection = ledger._database._open
        assert connection is not None
        pid = connection.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
        with psycopg.connect(host=postgres, user="tenure", dbname="postgres", autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

    _run(lambda: Ledger.open(postgres_url()), break_connection, examples=10)
