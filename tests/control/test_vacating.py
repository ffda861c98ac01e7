"""The end of an attempt is believed when its cards say so: the waiting, its bound, and a driver that hangs."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.control.live import Live
from tenure.control.vacating import Lingers, Vacated, Vacating
from tenure.domain.attempt import AttemptState, Observation
from tenure.domain.ids import CardId, Instant, JobId, RunId
from tenure.domain.job import JobSpec
from tenure.domain.lifecycle import JobState
from tenure.domain.workload import Admission, Placement
from tenure.ledger import JobRow
from tenure.telemetry.monitor import CardSample
from tenure.telemetry.nvml import GpuProcess

from .conftest import House

CARD = CardId("GPU-1")
GIB = 1 << 30


class Quick(Vacating):
    BOUND_S, QUIET_S, LOST_S = 0.4, 0.05, 0.1


class Patient(Vacating):
    BOUND_S = QUIET_S = 60.0


class Driver:
    """What a card says, and how often it was asked."""

    def __init__(self) -> None:
        self.used: int | None = 0
        self.processes: dict[int, int] = {}
        self.looks = 0
        self.by: set[threading.Thread] = set()  # who asked
        self.gives_back_at: int | None = None  # the look at which the card is empty
        self.answers = threading.Event()
        self.answers.set()

    def __call__(self, cards: Collection[CardId]) -> list[CardSample]:
        self.looks += 1
        self.by.add(threading.current_thread())
        assert self.answers.wait(10)
        if self.looks == self.gives_back_at:
            self.used = 0
        listed = tuple(GpuProcess(pid=pid, memory=memory) for pid, memory in self.processes.items())
        lost = self.used is None
        return [
            CardSample(
                card=card,
                at=Instant(0),
                memory_used=self.used,
                processes=None if lost else listed,
                error="lost" if lost else "",
                lost=lost,
            )
            for card in cards
        ]


def leaving(run: str, card: CardId) -> Live:
    place = Placement(pod_set="main", card=card, ranks=(0,), shares=1, memory=GIB)
    job = JobId(run.partition(".")[0])
    row = JobRow(seq=1, id=job, name="x", spec_digest="", submitted_at=Instant(0), state=JobState.EVICTING, attempts=1)
    live = Live.of(row, JobSpec(name="x", argv=("true",), workdir="/"))
    live.admission = Admission(cluster_queue="q", assignments=(), placements=(place,))
    return live


class Rig:
    def __init__(self, tmp_path: Path, kind: type[Vacating] = Quick) -> None:
        self.driver, self.heard = Driver(), queue.SimpleQueue[Lingers | Vacated]()
        self.vacating = kind(measured=[CARD], look=self.driver, say=self.heard.put)
        self.vacating.saw(self.driver([CARD]))
        self.driver.looks = 0
        self.driver.by.clear()
        self.folder = tmp_path

    def ends(self, run: str = "1.1", card: str = CARD, state: AttemptState = AttemptState.ENDED) -> bool:
        seen = Observation(run_id=RunId(run), state=state, at=Instant(0))
        live = leaving(run, CardId(card))
        return self.vacating.keeps(live, seen, self.folder / run, {live.id: live})

    def next(self) -> Any:
        return self.heard.get(timeout=5)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.driver.answers.set()
    rig.vacating.close()


def test_one_look_where_the_card_is_empty(rig: Rig) -> None:
    assert rig.ends()
    out = rig.next()
    assert (type(out), out.remark, rig.driver.looks) == (Vacated, "", 1)
    assert not rig.ends(), "the same end again: it may be written now"


def test_a_declared_card_and_what_never_ran_are_not_looked_at(rig: Rig) -> None:
    assert not rig.ends(card="declared-0")
    assert not rig.ends(state=AttemptState.LAUNCH_FAILED)
    assert not rig.ends(state=AttemptState.RUNNING)
    assert rig.driver.looks == 0


def test_a_survivor_keeps_the_place_beyond_every_bound_and_is_named_once(rig: Rig) -> None:
    env = {"TENURE_JOB_ID": "1", "TENURE_RUN_DIR": str(rig.folder / "1.1")}
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], env=env, stdin=subprocess.PIPE)
    try:
        rig.driver.used, rig.driver.processes = 2 * GIB, {process.pid: 2 * GIB}
        assert rig.ends()
        told = rig.next()
        assert isinstance(told, Lingers)
        assert f"(pid {process.pid}, 2 GiB of card {CARD})" in told.message
        rig.driver.processes = {process.pid: GIB}
        with pytest.raises(queue.Empty):
            rig.heard.get(timeout=3 * Quick.BOUND_S)
        assert rig.ends(), "asked again by whoever looks: still kept"
        rig.driver.used, rig.driver.processes = 0, {}  # the card lets go of it before it has left altogether
        assert rig.next().remark == ""
    finally:
        process.communicate(b"\n")


def test_memory_that_comes_back_late_is_waited_for_in_silence(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Patient)
    rig.driver.used, rig.driver.gives_back_at = 3 * GIB, 3
    assert rig.ends()
    out = rig.next()
    assert isinstance(out, Vacated)
    assert (out.remark, rig.driver.looks) == ("", 3)
    rig.vacating.close()


def test_memory_that_never_comes_back_is_told_and_given_up(rig: Rig) -> None:
    me = os.getpid()
    rig.driver.used, rig.driver.processes = 4 * GIB, {me: GIB}
    began = time.monotonic()
    assert rig.ends()
    waits = rig.next()
    assert isinstance(waits, Lingers)
    assert waits.message.startswith(f"3 GiB of card {CARD} are not back (the driver lists ")
    out = rig.next()
    assert isinstance(out, Vacated)
    assert f" {me} (" in out.remark
    assert out.left[0].unexplained == 3 * GIB
    assert time.monotonic() - began >= Quick.BOUND_S
    assert rig.ends("2.1"), "and who comes after it does not wait for the same bytes"
    assert rig.next().remark == ""


def test_a_card_that_is_lost_holds_nobody_up_for_long(rig: Rig) -> None:
    rig.driver.used = None
    assert rig.ends()
    found = rig.next()
    while isinstance(found, Lingers):
        found = rig.next()
    assert found.remark == f"card {CARD} could not be looked at: lost"


def test_a_driver_that_hangs_holds_up_the_end_and_not_who_asked(rig: Rig) -> None:
    rig.driver.answers.clear()
    assert rig.ends()
    assert rig.ends()
    assert rig.heard.empty()
    rig.driver.answers.set()
    assert rig.next().remark == ""
    assert threading.current_thread() not in rig.driver.by


def test_a_platform_with_declared_cards_looks_at_nothing(house: House) -> None:
    job = house.gpu("true")
    house.wait(job)
    assert "vacating" not in {thread.name for thread in threading.enumerate()}
