"""Cards leave the pool and come back: what runs there, what waits, and what a restart remembers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.control import verbs, views
from tenure.control.caller import Caller
from tenure.control.watch import FATAL_XIDS, CardWatch
from tenure.domain.errors import Forbidden, NotFound, Unavailable
from tenure.domain.ids import CardId, Instant
from tenure.telemetry.monitor import CardSample, XidEvent

from .conftest import ME, House

BOTH = "2x8x16Gi"


@pytest.fixture
def two(home: Path) -> Iterator[House]:
    house = House(home).open(card=BOTH)
    try:
        yield house
        house.check_laws(shares=16, memory=32 << 30)
    finally:
        house.clear()
        house.close()


def card_of(house: House, job: str) -> str:
    return next(card["id"] for card in views.cards(house.platform) if any(h["id"] == job for h in card["holders"]))


def test_a_drained_card_takes_nothing_new_and_what_runs_there_finishes(two: House) -> None:
    job = two.gpu("sleep", "60")
    two.wait(job, "running")
    here = card_of(two, job)
    shown = verbs.drain(two.platform, here, caller=ME)
    assert (shown["cordoned"], shown["cordon"]["by"], shown["cordon"]["move"]) == (True, "tester", False)
    assert verbs.drain(two.platform, here, caller=ME)["cordon"] == shown["cordon"]  # twice is once
    other = two.gpu("sleep", "60")
    two.wait(other, "running")
    assert card_of(two, other) != here
    assert two.show(job)["state"] == "running"
    nowhere = two.gpu("true", shares=8, memory="1Gi")
    two.wait_reason(nowhere, "TopologyPlacementFailed")
    (blocker,) = views.why(two.platform, nowhere)["blockers"]
    assert "there are 1; 1 more of it out of the pool" in blocker["message"]
    assert (blocker["free"], [h["id"] for h in blocker["held_by"]]) == (7, [other])
    verbs.undrain(two.platform, here, caller=ME)
    two.cancel(job)
    two.wait(nowhere)
    told = [e["data"] for e in views.events(two.platform) if e["kind"] == "CardsChanged"]
    assert [(d["card"], d["cordoned"]) for d in told] == [(here, True), (here, False)]


def test_move_queues_again_what_runs_there_and_a_restart_remembers(two: House) -> None:
    job = two.gpu("bash", "-c", "echo ready; sleep 60")
    two.wait_out(job, "ready")
    here = card_of(two, job)
    verbs.drain(two.platform, here, caller=ME, move=True)
    two.until("it runs elsewhere", lambda: two.show(job)["state"] == "running" and len(two.show(job)["attempts"]) == 2)
    assert card_of(two, job) != here
    first = two.show(job)["attempts"][0]
    assert (first["outcome"], first["evicted"]["reason"]) == ("interrupted", "NodeFailures")
    assert here in first["evicted"]["message"]
    two.close(keep_jobs=True)
    two.open(card=BOTH)
    out = {card["id"]: card["cordon"] for card in views.cards(two.platform)}
    assert out[here]["move"] is True
    assert [c for c in out.values() if c] == [out[here]]
    assert card_of(two, job) != here
    number = next(str(i) for i, card in enumerate(views.cards(two.platform)) if card["id"] == here)
    assert verbs.undrain(two.platform, number, caller=ME)["cordon"] is None


def test_a_move_that_a_crash_cut_off_is_made_after_it(two: House) -> None:
    job = two.gpu("sleep", "60")
    two.wait(job, "running")
    here = card_of(two, job)
    verbs.drain(two.platform, here, caller=ME)
    two.close(keep_jobs=True)
    two.open(card=BOTH)
    assert two.show(job)["state"] == "running"
    two.close(keep_jobs=True)
    from tenure.ledger import Cordon, Ledger

    ledger = Ledger.open(two.platform.settings.ledger_url)
    with ledger.transaction() as tx:  # written down, and then the power went
        tx.cordon(Cordon(card=CardId(here), at=Instant(1), by="me", reason="drained", move=True), message="out")
    ledger.close()
    two.open(card=BOTH)
    two.until("it runs elsewhere", lambda: two.show(job)["state"] == "running" and len(two.show(job)["attempts"]) == 2)
    assert card_of(two, job) != here


def test_who_may_drain_and_what_there_is_to_drain(two: House) -> None:
    with pytest.raises(Forbidden):
        verbs.drain(two.platform, "declared-0", caller=Caller(user="guest", role="user"))
    with pytest.raises(NotFound, match="declared-0, declared-1"):
        verbs.drain(two.platform, "declared-7", caller=ME)


def test_a_watch_tells_a_dead_card_from_a_dead_library_and_from_a_short_silence() -> None:
    failed: list[tuple[str, str]] = []
    looks: list[int] = []
    watch = CardWatch(list, failed=lambda card, why: failed.append((card, why)), looked=lambda: looks.append(1))
    a, b = CardId("GPU-a"), CardId("GPU-b")
    well = CardSample(card=b, at=Instant(0), memory_total=1)
    assert watch.reading(a).healthy is None
    for second in range(0, 15):
        watch.look([CardSample(card=a, at=Instant(0), error="GPU is lost", lost=True), well], second)
    watch.look([CardSample(card=a, at=Instant(0), memory_total=1), well], 16)  # a reset: it is back in time
    for second in range(17, 60):
        watch.look([CardSample(card=c, at=Instant(0), error="the driver is not loaded") for c in (a, b)], second)
    assert not failed
    assert watch.reading(b).healthy is None
    for second in range(60, 100):
        watch.look([CardSample(card=a, at=Instant(0), error="GPU is lost", lost=True), well], second)
    assert [card for card, _ in failed] == [a]
    assert "GPU is lost" in failed[0][1]
    assert (watch.reading(a).healthy, watch.reading(b).healthy) == (False, True)
    watch.forgive(a)
    for second in range(100, 130):
        watch.look([CardSample(card=a, at=Instant(0), error="GPU is lost", lost=True), well], second)
    assert len(failed) == 2
    assert len(looks) < 10


def test_a_card_that_could_not_be_taken_out_is_taken_out_at_a_later_look(caplog: pytest.LogCaptureFixture) -> None:
    """An Xid comes once, and a ledger that cannot be written may last."""
    full = [True]
    failed: list[tuple[str, str]] = []

    def take_out(card: CardId, why: str) -> None:
        if full[0]:
            raise Unavailable("the disk is full")
        failed.append((card, why))

    watch = CardWatch(list, failed=take_out)
    a, b = CardId("GPU-a"), CardId("GPU-b")
    lost = CardSample(card=b, at=Instant(0), error="GPU is lost", lost=True)
    well = CardSample(card=a, at=Instant(0), memory_total=1)
    assert watch.heard(XidEvent(card=a, at=Instant(0), code=79, meaning="off the bus"))
    for second in range(30):
        watch.look([well, lost], second)
    assert not failed
    assert "is still in the pool" in caplog.text
    full[0] = False
    for second in range(30, 60):
        watch.look([well, lost], second)
    assert failed == [(a, "Xid 79: off the bus"), (b, "does not answer for 20 s: GPU is lost")]


@pytest.mark.parametrize("code", [13, 31, 43, 79])
def test_an_xid_of_a_program_is_no_fault_of_its_card(code: int) -> None:
    failed: list[str] = []
    watch = CardWatch(list, failed=lambda card, why: failed.append(why))
    said = watch.heard(XidEvent(card=CardId("GPU-a"), at=Instant(0), code=code, meaning="so it is"))
    assert said is (code in FATAL_XIDS) is bool(failed)
    assert not watch.heard(XidEvent(card=None, at=Instant(0), code=79, meaning="somewhere"))
