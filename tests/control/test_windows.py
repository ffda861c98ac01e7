"""Windows: one holder, nobody inside who should not be, and an end that comes whatever happens."""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tenure.control import verbs, views
from tenure.control.caller import Caller
from tenure.control.clock import Clock
from tenure.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound
from tenure.domain.ids import Instant, JobId
from tenure.ledger import fold

from .conftest import ME, House

ANN = Caller(user="ann", role="user", via="token")
BOB = Caller(user="bob", role="user", via="token")
SLEEP = ("sleep", "60")


@pytest.fixture
def two(home: Path) -> Iterator[House]:
    house = House(home).open(card="2x8x16Gi")
    try:
        yield house
        house.check_laws(shares=16, memory=32 << 30)
    finally:
        house.clear()
        house.close()


class Late:
    """The steady clock, which is set forward: windows end and leases lapse when the test wants it, however busy the machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._by_us, real = 0, Clock.steady
        monkeypatch.setattr(Clock, "steady", lambda clock: Instant(real(clock) + self._by_us))

    def by(self, house: House, seconds: float) -> None:
        self._by_us += int(seconds * 1e6)
        house.platform.conductor.wake()


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Late:
    return Late(monkeypatch)


def claim(house: House, caller: Caller = ANN, **fields: Any) -> str:
    return str(verbs.claim_window(house.platform, caller=caller, **fields)["id"])


def gpu(house: House, caller: Caller, priority: str | None = None, **fields: Any) -> str:
    body = {"argv": list(SLEEP), "workdir": str(house.home.parent), "shares": 1, "gpu_memory": "1Gi", "grace": "2s"}
    body |= {"priority": priority} if priority else {}
    return str(verbs.submit(house.platform, body | fields, caller=caller)["id"])


def state(house: House, window: str) -> str:
    return str(views.window(house.platform, window)["state"])


def until_state(house: House, window: str, wanted: str) -> dict[str, Any]:
    house.until(f"{window} is {wanted}", lambda: state(house, window) == wanted)
    return views.window(house.platform, window)


def check_windows(house: House) -> None:
    """Law 1 for windows; and at no time, by the diary, do two hold one card or does a stranger enter a claimed one."""
    for row in house.platform.ledger.live_jobs():
        with suppress(Conflict):  # it was just ending
            house.cancel(row.id, grace_s=0.2)
    for window in views.windows(house.platform):
        if window["job_id"] is None:
            verbs.release_window(house.platform, window["id"], caller=ME)
    ledger = house.platform.ledger
    house.until("nothing moves any more", lambda: not list(ledger.live_jobs()) and not ledger.live_windows())
    events = ledger.events(limit=1_000_000)
    for id, row in fold(events).windows.items():
        assert row == ledger.window(id)
    holder: dict[str, str] = {}
    for event in events:
        if event.kind == "WindowOpened":
            assert str(event.data["card"]) not in holder, event
            holder[str(event.data["card"])] = str(event.data["window"])
        elif event.kind == "WindowEnded" and holder.get(str(event.data["card"])) == event.data["window"]:
            del holder[str(event.data["card"])]
        elif event.kind == "JobAdmitted" and event.job_id is not None:
            job = house.show(event.job_id)
            places = (event.changes["reservation"] or {}).get("placements", [])  # type: ignore[attr-defined]
            for window in [views.window(house.platform, holder[p["card"]]) for p in places if p["card"] in holder]:
                resident = job["priority"] >= 8000 and not window["including_resident"]
                mine = window["job_id"] == job["id"]
                theirs = window["job_id"] is None and window["owner"] == job["owner"]
                assert resident or mine or (theirs and job["priority_class"] != "on-demand"), (event, window)


def test_a_claim_clears_on_demand_work_and_leaves_residents(house: House) -> None:
    model, batch = gpu(house, ANN, "on-demand"), gpu(house, BOB)
    resident, mine = gpu(house, BOB, "always-on"), gpu(house, ANN)
    for job in (model, batch, resident, mine):
        house.wait(job, "running")
    window = claim(house, length="1h")
    assert until_state(house, window, "active")["owner"] == "ann"
    for job in (model, batch):
        shown = house.wait_reason(job, "WaitingForWindow")
        assert shown["attempts"][0]["evicted"]["reason"] == "WindowClaimed"
        assert f"window {window} of ann" in shown["attempts"][0]["evicted"]["message"]
        why = views.why(house.platform, job)
        end = views.window(house.platform, window)["ends_at"]
        assert end in why["message"]
        assert [holder["id"] for holder in why["blockers"][0]["held_by"]] == [window]
    assert [house.show(job)["state"] for job in (resident, mine)] == ["running", "running"]
    inside, outside, service = gpu(house, ANN), gpu(house, BOB, "training"), gpu(house, BOB, "registry")
    house.wait(inside, "running")
    house.wait(service, "running")
    house.wait_reason(outside, "WaitingForWindow")
    no_card = house.submit("true")  # what needs no card is no business of a window's
    house.wait(no_card)
    verbs.release_window(house.platform, window, caller=ANN)
    for job in (model, batch, outside):
        house.wait(job, "running")
    check_windows(house)


def test_residents_go_too_where_the_claim_says_so(house: House) -> None:
    resident = gpu(house, BOB, "registry")
    house.wait(resident, "running")
    window = claim(house, including_resident=True)
    until_state(house, window, "active")
    house.wait_reason(resident, "WaitingForWindow")
    verbs.release_window(house.platform, window, caller=ME)
    house.wait(resident, "running")
    check_windows(house)


def test_it_waits_for_anothers_training_and_says_so(house: House) -> None:
    training = gpu(house, BOB, "training")
    house.wait(training, "running")
    with pytest.raises(Conflict, match=f"job {training} of bob"):
        claim(house)
    window = claim(house, wait=True)
    late = gpu(house, BOB, "training")
    house.wait_reason(late, "WaitingForWindow")
    assert state(house, window) == "waiting"
    assert f"job {training}" in views.window(house.platform, window)["message"]
    assert house.show(training)["state"] == "running"
    house.cancel(training, grace_s=0.2)
    until_state(house, window, "active")
    assert house.show(late)["state"] == "queued"
    verbs.release_window(house.platform, window, caller=ANN)
    house.wait(late, "running")
    check_windows(house)


def test_it_says_what_it_waits_for_as_long_as_there_is_something(house: House) -> None:
    training = gpu(house, BOB, "training")
    house.until("it runs", lambda: house.show(training)["state"] == "running")
    window = claim(house, wait=True)
    house.until("it waits", lambda: f"job {training}" in str(views.window(house.platform, window)["message"]))
    with (conductor := house.platform.conductor).lock:  # between the end of the last in its way and the next look
        live = conductor.live.pop(JobId(training))
        said = str(views.window(house.platform, window)["message"])
        conductor.live[live.id] = live
    assert said.startswith("is about to hold card ")
    check_windows(house)


def test_it_lapses_by_itself_and_the_next_in_line_follows(late: Late, house: House) -> None:
    first = claim(house, length="1h")
    until_state(house, first, "active")
    with pytest.raises(Conflict, match="--wait"):
        claim(house, BOB)
    second, third = claim(house, BOB, wait=True, length="1h"), claim(house, wait=True)
    assert "after window" in views.window(house.platform, second)["message"]
    late.by(house, 3600)
    assert until_state(house, second, "active")["opened_at"] >= until_state(house, first, "ended")["ended_at"][:19]
    assert views.window(house.platform, first)["reason"] == "Lapsed"
    assert state(house, third) == "waiting"
    late.by(house, 3600)
    until_state(house, third, "active")
    assert [row["id"] for row in views.windows(house.platform)] == [third]
    assert [row["id"] for row in views.windows(house.platform, all=True)] == [third, second, first]
    check_windows(house)


def test_claims_that_race_have_one_winner(house: House) -> None:
    won: list[str] = []
    lost: list[Conflict] = []

    def race(n: int) -> None:
        try:
            won.append(claim(house, Caller(user=f"user{n}", role="user")))
        except Conflict as error:
            lost.append(error)

    threads = [threading.Thread(target=race, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 7)
    until_state(house, won[0], "active")
    check_windows(house)


def test_clocks_jump_and_the_window_does_not(late: Late, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    outside, real = gpu(house, BOB, hold=True), time.time_ns
    window = claim(house, length="30m")
    opened = until_state(house, window, "active")
    for jump in (3600, -7200, 0):
        monkeypatch.setattr(time, "time_ns", lambda jump=jump: real() + jump * 10**9)
        verbs.release(house.platform, outside, caller=BOB)
        house.platform.conductor.wake()
        house.wait_reason(outside, "WaitingForWindow")
        assert views.window(house.platform, window)["ends_at"] == opened["ends_at"]
    assert state(house, window) == "active"
    late.by(house, 1800)
    until_state(house, window, "ended")
    house.wait(outside, "running")
    check_windows(house)


def test_a_restart_keeps_the_holder_and_the_line(house: House) -> None:
    window, other = claim(house, length="1h"), claim(house, BOB, wait=True)
    until_state(house, window, "active")
    outside, inside = gpu(house, BOB), gpu(house, ANN)
    house.wait(inside, "running")
    house.close(keep_jobs=True)
    house.open()
    assert (state(house, window), state(house, other)) == ("active", "waiting")
    assert house.show(outside)["reason"] == "WaitingForWindow"
    assert house.show(inside)["state"] == "running"
    verbs.release_window(house.platform, window, caller=ANN)
    until_state(house, other, "active")
    house.wait(outside, "running")
    check_windows(house)


def test_one_that_ended_while_the_daemon_was_down_is_over(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    window = claim(house, length="10m")
    until_state(house, window, "active")
    outside = gpu(house, BOB)
    house.wait_reason(outside, "WaitingForWindow")
    house.close(keep_jobs=True)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 600 * 10**9)  # its time passes with nobody there
    house.open()
    house.wait(outside, "running")
    assert views.window(house.platform, window)["reason"] == "Lapsed"
    check_windows(house)


def test_a_step_that_fails_leaves_one_holder(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop rebuilds itself from the ledger in the middle of a claim, between the eviction and the opening."""
    model = gpu(house, ANN, "on-demand")
    house.wait(model, "running")
    conductor, real, failed = house.platform.conductor, house.platform.conductor.decide, []

    def decide() -> None:
        if not failed:
            failed.append(True)
            raise RuntimeError("cut off here")
        real()

    with conductor.lock:
        window = claim(house)
        other = claim(house, BOB, wait=True)
        monkeypatch.setattr(conductor, "decide", decide)
    until_state(house, window, "active")
    house.wait_reason(model, "WaitingForWindow")
    assert failed
    assert state(house, other) == "waiting"
    check_windows(house)


def test_an_owner_who_is_not_heard_of_loses_it(late: Late, house: House) -> None:
    window = claim(house, lease_s=600)
    kept = claim(house, BOB, wait=True, lease_s=600)
    until_state(house, window, "active")
    for _ in range(2):
        late.by(house, 301)
        verbs.renew_window(house.platform, kept, caller=BOB)
        assert state(house, kept) != "ended"
    assert until_state(house, window, "ended")["reason"] == "OwnerGone"
    until_state(house, kept, "active")
    assert verbs.renew_window(house.platform, kept, caller=BOB, keep=True)["lease_s"] is None
    check_windows(house)


def test_after_a_restart_nobody_leaves_for_an_owner_who_is_gone(house: House) -> None:
    training, model = gpu(house, BOB, "training"), gpu(house, BOB, "on-demand")
    for job in (training, model):
        house.wait(job, "running")
    window, behind = claim(house, wait=True, lease_s=600), claim(house, ME, wait=True, length="1h")
    house.close(keep_jobs=True)
    house.open()
    house.cancel(training, grace_s=0.2)
    house.wait(training)
    house.until("it holds its place", lambda: "a sign of ann" in str(views.window(house.platform, window)["message"]))
    assert house.show(model)["state"] == "running"
    verbs.renew_window(house.platform, window, caller=ANN, keep=True)
    until_state(house, window, "active")
    assert state(house, behind) == "waiting"
    check_windows(house)


def test_a_window_that_comes_keeps_out_what_cannot_end_before_it(house: House) -> None:
    model = gpu(house, ANN, "on-demand")
    house.wait(model, "running")
    window = claim(house, begin="now+1hour", length="1h")
    assert state(house, window) == "scheduled"
    endless, long, short = gpu(house, BOB), gpu(house, BOB, time="2h"), gpu(house, BOB, time="30m")
    resident, mine = gpu(house, BOB, "registry"), gpu(house, ANN)
    for job in (short, resident, mine):
        house.wait(job, "running")
    for job, said in ((endless, "has no --time"), (long, "may run for 2h")):
        message = house.wait_reason(job, "WaitingForWindow")["message"]
        assert said in message
        assert views.window(house.platform, window)["begin_at"] in message
    assert house.show(model)["state"] == "running"
    with pytest.raises(Conflict, match=f"window {window}"):
        claim(house, BOB, length="2h")
    between = claim(house, BOB, length="30m")  # it is over before the other begins
    until_state(house, between, "active")
    verbs.release_window(house.platform, between, caller=BOB)
    verbs.release_window(house.platform, window, caller=ANN)
    house.wait(endless, "running")
    house.wait(long, "running")
    check_windows(house)


def test_a_later_claim_does_not_take_an_announced_ones_time(late: Late, house: House) -> None:
    first = claim(house, begin="now+3minutes", length="1h")
    second, third = claim(house, BOB, begin="now+2minutes", length="1h"), claim(house, BOB, wait=True, length="2h")
    late.by(house, 180)
    assert until_state(house, first, "active")["claimed_at"] < views.window(house.platform, second)["claimed_at"]
    assert [row["id"] for row in views.windows(house.platform)] == [first, second, third]
    for one, other in ((first, second), (second, third)):
        assert f"after window {one}" in views.window(house.platform, other)["message"]
        verbs.release_window(house.platform, one, caller=ME)
        until_state(house, other, "active")
    check_windows(house)


def test_an_announced_one_whose_time_went_by_with_the_platform_down_is_over(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, late = claim(house, begin="now+1hour", length="1h"), claim(house, BOB, begin="now+2hours", length="2h")
    house.close(keep_jobs=True)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 3 * 3600 * 10**9)  # nobody is there for three hours
    house.open()
    ended = until_state(house, gone, "ended")
    assert ended["reason"] == "Lapsed"
    assert "with the platform down" in ended["message"]
    until_state(house, late, "active")
    check_windows(house)


def test_a_scheduled_one_begins_by_itself(house: House) -> None:
    model = gpu(house, ANN, "on-demand")
    house.wait(model, "running")
    window = claim(house, begin="now+1seconds", length="1h")
    until_state(house, window, "active")
    house.wait_reason(model, "WaitingForWindow")
    kinds = [e["kind"] for e in views.events(house.platform) if e["data"].get("window") == window]
    assert kinds == ["WindowClaimed", "WindowDue", "WindowOpened"]
    check_windows(house)


def test_a_job_with_its_own_window_has_the_card_and_lets_go(house: House) -> None:
    model, other = gpu(house, ANN, "on-demand"), gpu(house, ANN)
    for job in (model, other):
        house.wait(job, "running")
    gate = house.gate()
    job = gpu(house, ANN, window=True, argv=list(gate.argv()), time="1h")
    house.wait(job, "running")
    (window,) = views.windows(house.platform)
    assert (window["job_id"], window["state"], window["owner"], window["length_s"]) == (job, "active", "ann", 3600)
    for left in (model, other):  # the claim is the job's, not its owner's
        house.wait_reason(left, "WaitingForWindow")
    gate.open()
    house.wait(job)
    assert until_state(house, window["id"], "ended")["reason"] == "JobEnded"
    for left in (model, other):
        house.wait(left, "running")
    check_windows(house)


def test_jobs_with_windows_of_their_own_take_turns(house: House) -> None:
    gate = house.gate()
    jobs = [gpu(house, caller, window=True, argv=list(gate.argv())) for caller in (ANN, BOB, ANN)]
    waiting = house.wait_reason(jobs[1], "WaitingForWindow")
    assert "window" in waiting["message"]
    with pytest.raises(Conflict, match="cancel or hold"):
        verbs.release_window(house.platform, str(views.windows(house.platform)[-1]["id"]), caller=ME)
    gate.open()
    for job in jobs:
        house.wait(job)
    house.until("all are over", lambda: not views.windows(house.platform))
    starts = [house.show(job)["attempts"][0] for job in jobs]
    assert all(a["ended_at"] <= b["started_at"] for a, b in pairwise(starts))
    check_windows(house)


@pytest.mark.parametrize("ask", [{"shares": 8}, {"gpu_memory": "16Gi"}, {"shares": 0, "whole": True}], ids=str)
def test_a_job_that_a_resident_leaves_no_room_for_keeps_the_card_from_nobody(house: House, ask: dict[str, Any]) -> None:
    resident = gpu(house, BOB, "always-on")
    house.wait(resident, "running")
    job = gpu(house, ANN, window=True, argv=["true"], **ask)
    told = house.wait_reason(job, "WaitingForWindow")["message"]
    assert f"beside job {resident}" in told, told
    assert [window["state"] for window in views.windows(house.platform)] == ["waiting"]
    views.why(house.platform, job)
    for caller, priority in ((BOB, None), (ANN, "on-demand")):  # nobody waits for a window that nobody is in
        house.wait(gpu(house, caller, priority, argv=["true"]))
    assert house.show(job)["state"] == "queued"
    house.cancel(resident)
    assert house.wait(job)["outcome"] == "completed"
    check_windows(house)


def test_a_job_with_a_window_goes_where_residents_leave_it_room(two: House) -> None:
    resident = gpu(two, BOB, "always-on")
    two.wait(resident, "running")
    gpu(two, BOB, "on-demand", shares=8)  # on the other card, and asked to leave it
    two.wait(gpu(two, ANN, window=True, argv=["true"], shares=8))
    assert two.show(resident)["state"] == "running"
    check_windows(two)


def test_a_job_that_may_preempt_a_resident_has_its_window_and_does(house: House) -> None:
    resident = gpu(house, BOB, "always-on")
    house.wait(resident, "running")
    job = gpu(house, ANN, "registry", window=True, argv=["true"], shares=8)
    assert house.wait(job)["outcome"] == "completed"
    assert "Preempted" in str(views.show(house.platform, resident)["attempts"])
    check_windows(house)


def test_a_window_is_one_card_and_has_an_end(house: House) -> None:
    for wrong in ({"shares": 9}, {"gang": "2", "shares": 5}, {"gpu_memory": "17Gi"}):
        with pytest.raises(InvalidRequest, match="one whole card"):
            gpu(house, ANN, window=True, **wrong)
    body = {"argv": ["true"], "workdir": str(house.home.parent), "shares": 1, "gpu_memory": "1Gi", "window": True}
    (note,) = verbs.submit(house.platform, body, caller=ANN)["notes"]
    assert "two hours" in note
    assert verbs.submit(house.platform, {**body, "time": "1h"}, caller=ANN)["notes"] == []
    check_windows(house)


def test_another_card_is_left_alone(two: House) -> None:
    jobs = [gpu(two, BOB, shares=8) for _ in range(2)]
    for job in jobs:
        two.wait(job, "running")
    window = until_state(two, claim(two, card="1"), "active")
    (moved,) = [job for job in jobs if two.show(job)["state"] != "running"]
    why = two.until("it waits for room", lambda: (w := views.why(two.platform, moved))["blockers"] and w)
    assert [b["held_by"][0]["id"] for b in why["blockers"] if b["kind"] == "window"] == [window["id"]]
    two.cancel(next(job for job in jobs if job != moved), grace_s=0.2)
    two.wait(moved, "running")
    other = gpu(two, BOB, window=True, argv=["true"])
    two.wait(other)
    cards = [event["data"]["card"] for event in views.events(two.platform) if event["kind"] == "WindowOpened"]
    assert len(set(cards)) == 2
    two.wait(moved, "running")
    assert views.window(two.platform, window["id"])["state"] == "active"
    check_windows(two)


def test_who_may_and_what_there_is(house: House) -> None:
    window = claim(house)
    for verb in (verbs.release_window, verbs.renew_window):
        with pytest.raises(Forbidden, match="belongs to ann"):
            verb(house.platform, window, caller=BOB)
        with pytest.raises(NotFound):
            verb(house.platform, "w99", caller=ANN)
    assert verbs.release_window(house.platform, window, caller=ME)["state"] == "ended"
    assert verbs.release_window(house.platform, window, caller=ANN)["reason"] == "Released"  # twice is once
    for wrong in ({"length": "soon"}, {"length": "0"}, {"begin": "late"}, {"card": "no-such"}, {"lease_s": 0.1}):
        with pytest.raises(InvalidRequest):
            claim(house, **wrong)
    check_windows(house)


def test_a_claim_while_jobs_are_being_started(house: House) -> None:
    jobs = [gpu(house, ANN, "on-demand") for _ in range(4)]
    window = claim(house)  # some are admitted by now, some have a process, some are only in the queue
    late = gpu(house, BOB)
    until_state(house, window, "active")
    for job in (*jobs, late):
        house.wait_reason(job, "WaitingForWindow")
    check_windows(house)


def test_whatever_happens_in_whatever_order_nobody_enters(house: House) -> None:
    """Claims, releases and submissions from four sides at once; the diary says afterwards who was where."""
    began = time.monotonic()

    def enough() -> bool:
        """Some seconds, and more where the machine needs more to do something."""
        kinds = Counter(event.kind for event in house.platform.ledger.events(limit=10_000))
        passed = time.monotonic() - began
        return passed > 2.5 and (min(kinds["WindowOpened"], kinds["JobStarted"]) > 2 or passed > 30)

    def side(n: int) -> None:
        dice = random.Random(n)
        caller = (ANN, BOB)[n % 2]
        while not enough():
            match dice.randrange(4):
                case 0:
                    length = dice.choice(("1s", "2s", "1h"))
                    claim(house, caller, wait=True, length=length, including_resident=dice.random() < 0.3)
                case 1:
                    for row in views.windows(house.platform):
                        if row["owner"] == caller.user and row["job_id"] is None:
                            verbs.release_window(house.platform, row["id"], caller=caller)
                case 2:
                    begin = f"now+{dice.randrange(1, 3)}seconds"
                    claim(house, caller, begin=begin, length="1s")
                case _:
                    words = dice.choice(("on-demand", "batch", "training", "always-on"))
                    own = dice.random() < 0.2
                    gpu(house, caller, words, argv=["sleep", "0.3"], window=own, time=dice.choice(("1s", "1h")))
            time.sleep(dice.random() * 0.1)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(side, n) for n in range(4)]:
            done.result()
    kinds = Counter(event["kind"] for event in views.events(house.platform, limit=10_000))
    assert kinds["WindowOpened"] > 2
    assert kinds["JobStarted"] > 2
    assert house.platform.conductor.faults == 0
    check_windows(house)


@pytest.mark.parametrize("jump_s", [-7200, 86_400])
def test_a_line_keeps_its_order_and_its_times_when_the_clock_jumps(
    house: House, monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    real = time.time_ns
    first, second = claim(house, length="1h"), claim(house, BOB, wait=True, length="1h")
    until_state(house, first, "active")
    monkeypatch.setattr(time, "time_ns", lambda: real() + jump_s * 10**9)
    third = claim(house, wait=True, length="1h")  # by the stamps it may have been claimed before the second
    announced = claim(house, BOB, begin="now+1seconds", length="1s")
    house.until("its time has come", lambda: state(house, announced) == "waiting")
    assert [row["id"] for row in views.windows(house.platform)] == [first, second, third, announced]
    verbs.release_window(house.platform, first, caller=ME)
    opened = until_state(house, second, "active")
    assert opened["opened_at"][:16] == time.strftime("%Y-%m-%dT%H:%M", time.gmtime(time.time_ns() / 1e9))
    house.close(keep_jobs=True)  # and over a restart, which has only the stamps to go by
    house.open()
    assert [row["id"] for row in views.windows(house.platform)] == [second, third, announced]
    check_windows(house)


def test_why_expects_no_start_before_the_windows_are_over(house: House) -> None:
    first = claim(house, length="1h")
    end = until_state(house, first, "active")["ends_at"]
    outside = gpu(house, BOB, shares=8, time="10m")
    behind = gpu(house, BOB, shares=8, time="10m")
    house.wait_reason(behind, "WaitingForWindow")
    expected = views.why(house.platform, outside)["expected_start"]
    # two clocks read one after the other: milliseconds apart, which may be two seconds of the wall
    assert [apart(end, expected[point]) for point in ("p50", "p90")] == pytest.approx([0, 0], abs=1)
    named = re.match(rf"the end of window {first} of ann \((\S+)", expected["basis"])
    assert named, expected["basis"]
    assert apart(end, named[1]) == pytest.approx(0, abs=1)
    # the one before it takes the whole card for ten minutes
    later = views.why(house.platform, behind)["expected_start"]
    assert apart(end, later["p50"]) == pytest.approx(600, abs=2)
    assert "time limits of 1 job" in later["basis"]
    second = claim(house, ME, wait=True, length="2h")
    expected = views.why(house.platform, outside)["expected_start"]
    assert apart(end, expected["p50"]) == pytest.approx(7200, abs=2)
    assert f"window {first} of ann and window {second} of tester" in expected["basis"]
    own = gpu(house, BOB, window=True, time="10m")
    house.wait_reason(own, "WaitingForWindow")
    house.until("it has claimed one", lambda: any(w["job_id"] == own for w in views.windows(house.platform)))
    assert apart(end, views.why(house.platform, own)["expected_start"]["p50"]) == pytest.approx(7200, abs=2)
    check_windows(house)


def apart(before: str, after: str) -> float:
    return (datetime.fromisoformat(after) - datetime.fromisoformat(before)).total_seconds()


def test_why_behind_an_announced_one_says_its_end(house: House) -> None:
    window = claim(house, begin="now+1hour", length="1h")
    outside = gpu(house, BOB, time="2h")
    house.wait_reason(outside, "WaitingForWindow")
    expected = views.why(house.platform, outside)["expected_start"]
    assert apart(views.window(house.platform, window)["begin_at"], expected["p50"]) == pytest.approx(3600, abs=2)
    check_windows(house)
