"""Writers take turns and lose nothing; readers never wait for them and see whole transactions."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenure.domain.errors import StaleWrite
from tenure.domain.events import EventKind
from tenure.domain.ids import Instant, JobId
from tenure.domain.lifecycle import JobEvent, JobState
from tenure.ledger import Change, JobFilter, Ledger, NewJob

T = Instant(1_790_000_000_000_000)


def test_sixteen_clients_submit_and_none_is_lost(ledger: Ledger) -> None:
    start = threading.Barrier(16)

    def client(name: int) -> list[str]:
        start.wait()
        mine = []
        for n in range(20):
            with ledger.transaction() as tx:
                number = str(tx.next_job_number())
                tx.add_jobs([NewJob(id=JobId(number), name="x", spec="{}")], T)
                tx.remember("all", f"{name}-{n}", "h", number, T)
            mine.append(number)
            assert ledger.job(number).state is JobState.QUEUED
        return mine

    with ThreadPoolExecutor(16) as clients:
        given = [number for mine in clients.map(client, range(16)) for number in mine]
    assert sorted(given, key=int) == [str(n) for n in range(1, 321)]
    assert sum(ledger.counts().values()) == 320
    assert [e.job_id for e in ledger.events(limit=1000)] == [r.id for r in ledger.live_jobs()]


def test_of_sixteen_who_saw_the_same_one_wins(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.add_jobs([NewJob(id=JobId("1"), name="x", spec="{}")], T)
    start = threading.Barrier(16)

    def admit(_: int) -> bool:
        start.wait()
        try:
            with ledger.transaction() as tx:
                tx.move(
                    Change(
                        job_id=JobId("1"), event=JobEvent.ADMIT, kind=EventKind.JOB_ADMITTED, at=T,
                        expect_state=JobState.QUEUED, expect_revision=1,
                    )
                )  # fmt: skip
        except StaleWrite:
            return False
        return True

    with ThreadPoolExecutor(16) as writers:
        assert sum(writers.map(admit, range(16))) == 1
    assert ledger.job("1").revision == 2


def test_a_reader_sees_the_last_commit_while_a_writer_writes(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.add_jobs([NewJob(id=JobId("1"), name="x", spec="{}")], T)
        assert ledger.find_job("1") is None
        with ThreadPoolExecutor(1) as other:
            assert other.submit(ledger.jobs).result(10).items == ()
    assert ledger.job("1").id == "1"


def test_many_readers_beside_a_writer(ledger: Ledger) -> None:
    done = threading.Event()

    def read(_: int) -> int:
        seen = 0
        while not done.is_set():
            page = ledger.jobs(JobFilter(), limit=50)
            seen = max(seen, len(page.items))
            assert len(page.items) % 10 == 0, "a transaction was seen by half"
        return seen

    with ThreadPoolExecutor(12) as readers:
        looks = [readers.submit(read, n) for n in range(12)]
        try:
            for batch in range(20):
                with ledger.transaction(durable=False) as tx:
                    tx.add_jobs([NewJob(id=JobId(f"{batch}_{n}"), name="x", spec="{}") for n in range(10)], T)
        finally:
            done.set()
        assert all(look.result(10) <= 50 for look in looks)


@pytest.mark.parametrize("durable", [True, False])
def test_another_process_reads_what_was_committed(ledger: Ledger, ledger_url: str, durable: bool) -> None:
    with ledger.transaction(durable=durable) as tx:
        tx.add_jobs([NewJob(id=JobId("1"), name="x", spec="{}")], T)
    other = Ledger.open(ledger_url)
    try:
        assert other.job("1") == ledger.job("1")
        with other.transaction() as tx:
            assert tx.next_job_number() == 1
        with ledger.transaction() as tx:
            assert tx.next_job_number() == 2
    finally:
        other.close()
