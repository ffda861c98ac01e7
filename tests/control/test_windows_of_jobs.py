"""Windows that are claimed for jobs: no card is cleared, and none is kept, for a job that cannot start in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tenure.control import verbs, views, window_jobs
from tenure.control.caller import Caller
from tenure.domain.errors import InvalidRequest

from .conftest import ME, House
from .test_window_states import WindowStates
from .test_windows import ANN, BOB, check_windows, claim, gpu, state, two, until_state

__all__ = ["two"]  # the fixture


def window_of(house: House, job: str) -> dict[str, Any]:
    found: dict[str, Any] = house.until(
        f"a window of job {job}", lambda: next((w for w in views.windows(house.platform) if w["job_id"] == job), None)
    )
    return found


def card_of(house: House, job: str) -> str:
    admission = house.platform.conductor.live[job].admission  # type: ignore[index]
    assert admission is not None
    return str(admission.placements[0].card)


def stop_queue(house: House, stop: str) -> None:
    """A person edits the policy: `stopPolicy` of ClusterQueue general."""
    path = house.platform.settings.policy_dir / "20-cluster-queues.yaml"
    text = "\n".join(line for line in path.read_text().splitlines() if "stopPolicy" not in line)
    head, tail = text.split("  name: general\nspec:\n", 1)
    path.write_text(f"{head}  name: general\nspec:\n  stopPolicy: {stop}\n{tail}\n")
    verbs.reload_policy(house.platform, caller=ME)


def kept_out(house: House, job: str, says: str) -> dict[str, Any]:
    """The job waits for its window, the window for the job; the window and the job's `why` say what is in the way."""
    window = window_of(house, job)

    def told() -> str | None:
        message = str(views.window(house.platform, window["id"])["message"])
        return message if says in message else None

    message = house.until(f"{window['id']} says {says!r}", told)
    assert message.startswith(f"does not take card {window['card']} before job {job} could start in it: ")
    assert state(house, window["id"]) == "waiting"
    house.wait_reason(job, "WaitingForWindow")
    why = views.why(house.platform, job)
    assert f"its window {window['id']}" in why["message"]
    assert says in why["message"]
    return why


def test_a_stopped_queue_keeps_the_card_from_nobody(house: House) -> None:
    model = gpu(house, BOB, "on-demand")
    house.wait(model, "running")
    stop_queue(house, "Hold")
    job = gpu(house, ANN, window=True, argv=["true"])
    why = kept_out(house, job, "ClusterQueue general is stopped")
    assert "queue" in [blocker["kind"] for blocker in why["blockers"]]
    house.wait(gpu(house, BOB, queue="large-model", argv=["true"]))
    assert house.show(model)["state"] == "running"
    stop_queue(house, "None")
    assert house.wait(job)["outcome"] == "completed"
    assert house.show(model)["attempts"][0]["evicted"]["reason"] == "WindowClaimed"
    house.wait(model, "running")
    check_windows(house)


def test_quota_that_is_used_on_another_card_is_waited_for_while_this_one_is_everybodys(two: House) -> None:
    hog = gpu(two, BOB, "always-on", queue="large-model")  # that queue may borrow one share
    two.wait(hog, "running")
    models = [gpu(two, BOB, "on-demand", shares=7) for _ in range(2)]
    for model in models:
        two.wait(model, "running")
    job = gpu(two, ANN, "training", window=True, argv=["true"], queue="large-model")
    why = kept_out(two, job, "insufficient")
    assert hog in {holder["id"] for blocker in why["blockers"] for holder in blocker["held_by"]}
    assert [two.show(model)["state"] for model in models] == ["running", "running"]
    two.wait(gpu(two, BOB, argv=["true"]))
    two.cancel(hog, grace_s=0.2)
    assert two.wait(job)["outcome"] == "completed"
    check_windows(two)


def test_nobody_is_made_to_leave_who_would_be_back_before_the_job(two: House) -> None:
    """Its quota is what the job needs, the other card has room for it, and it goes first."""
    resident = gpu(two, BOB, "always-on", queue="large-model")
    two.wait(resident, "running")
    job = gpu(two, ANN, window=True, including_resident=True, argv=["true"], queue="large-model")
    kept_out(two, job, "insufficient")
    assert [attempt["state"] for attempt in two.show(resident)["attempts"]] == ["running"]
    two.cancel(resident, grace_s=0.2)
    assert two.wait(job)["outcome"] == "completed"
    check_windows(two)


@pytest.mark.parametrize("field", [{"hold": True}, {"begin": "now+1hour"}, {"after": "first"}], ids=str)
def test_nothing_is_claimed_for_a_job_that_may_not_start_yet(house: House, field: dict[str, Any]) -> None:
    first = gpu(house, BOB, "on-demand")
    house.wait(first, "running")
    job = gpu(house, ANN, window=True, **(field if "after" not in field else {"after": [f"afterany:{first}"]}))
    reasons = {"hold": "Suspended", "begin": "WaitingForBeginTime", "after": "WaitingForDependency"}
    house.wait_reason(job, reasons[next(iter(field))])
    house.wait(gpu(house, BOB, argv=["true"]))
    assert views.windows(house.platform) == []
    check_windows(house)


def test_a_held_job_gives_its_window_back(house: House) -> None:
    training = gpu(house, BOB, "training")
    house.wait(training, "running")
    job = gpu(house, ANN, window=True, argv=["true"])
    window = window_of(house, job)
    house.wait_reason(job, "WaitingForWindow")
    verbs.hold(house.platform, job, caller=ANN)
    assert until_state(house, window["id"], "ended")["reason"] == "JobEnded"
    verbs.release(house.platform, job, caller=ANN)
    assert window_of(house, job)["id"] != window["id"]
    check_windows(house)


@pytest.fixture
def turned() -> Iterator[WindowStates]:
    """A platform whose loop is stepped by hand, on a clock that the test turns; of its two cards one is in the pool."""
    states = WindowStates()
    states.a_card_goes_out_of_the_pool_or_comes_back(card="1", move=False)
    yield states
    states.teardown()


def put(states: WindowStates, who: Caller, window: bool) -> str:
    asked = {"window": True} if window else {}
    states.submit(who=who, priority="batch", time=None, shares=2, window=asked, stubborn=False, queue="general")
    return list(states.conductor.live)[-1]


def job_state(states: WindowStates, job: str) -> str:
    return str(views.show(states.platform, job)["state"])


def the_last_windows(states: WindowStates) -> list[tuple[str, str, str]]:
    found = views.windows(states.platform, all=True)[::-1]
    return [(window["id"], window["state"], window["reason"]) for window in found]


def test_an_open_window_that_its_job_does_not_use_is_given_back(
    turned: WindowStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its program fails, and is tried again after a second, after two and after four."""
    monkeypatch.setattr(window_jobs, "PATIENCE_US", 2_000_000)
    other, job = put(turned, BOB, window=False), put(turned, ANN, window=True)
    assert the_last_windows(turned) == [("w1", "active", "")]
    for seconds in (1, 2):
        turned.one_fails(pick=1)
        assert [job_state(turned, id) for id in (job, other)] == ["queued", "queued"]
        for _ in range(seconds):
            turned.pass_time(seconds=1)
        assert job_state(turned, job) == "running", "it is there in time, though only just"
    turned.one_fails(pick=1)
    for _ in range(2):
        assert [job_state(turned, id) for id in (job, other)] == ["queued", "queued"]
        turned.pass_time(seconds=1)
    assert the_last_windows(turned) == [("w1", "ended", "JobWaits")]
    assert [job_state(turned, id) for id in (job, other)] == ["queued", "running"]
    turned.pass_time(seconds=1)
    turned.pass_time(seconds=1)
    assert the_last_windows(turned) == [("w1", "ended", "JobWaits"), ("w2", "active", "")]
    assert [job_state(turned, id) for id in (job, other)] == ["running", "queued"], "its next attempt has another"
    message = views.window(turned.platform, "w1")["message"]
    assert f"job {job}, for which it was claimed, did not start: " in message


def test_an_open_window_waits_anew_for_a_job_that_started_and_failed_between_two_looks(
    turned: WindowStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_jobs, "PATIENCE_US", 2_000_000)
    job = put(turned, ANN, window=True)
    turned.one_fails(pick=0)
    with monkeypatch.context() as unseen:
        unseen.setattr(turned.conductor.windows, "look", lambda _: None)
        turned.pass_time(seconds=1)
        assert job_state(turned, job) == "running"
        turned.one_fails(pick=0)
    for then in ("queued", "running"):
        turned.pass_time(seconds=1)
        assert job_state(turned, job) == then
    assert the_last_windows(turned) == [("w1", "active", "")]


def test_a_job_that_lets_a_window_go_to_waste_does_not_get_the_next_at_once(
    turned: WindowStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was to start by all that was known, and did not: here because nobody asks the engine."""
    monkeypatch.setattr(turned.conductor.engine, "obstacle", lambda *_, **__: None)
    turned.the_queue_is_stopped_or_started()
    job = put(turned, ANN, window=True)
    assert the_last_windows(turned) == [("w1", "active", "")]
    turned.pass_time(seconds=5)
    assert the_last_windows(turned) == [("w1", "active", "")]
    turned.pass_time(seconds=5)
    assert the_last_windows(turned) == [("w1", "ended", "JobWaits"), ("w2", "waiting", "")]
    assert "ClusterQueue general is stopped" in views.window(turned.platform, "w1")["message"]
    for seen in (views.window(turned.platform, "w2"), views.why(turned.platform, job)):
        assert "it did not start when it was to, and is not tried again before" in seen["message"]
    turned.pass_time(seconds=20)
    turned.pass_time(seconds=20)
    assert the_last_windows(turned)[-1] == ("w2", "waiting", "")
    turned.pass_time(seconds=20)
    assert the_last_windows(turned)[-1] == ("w2", "active", "")
    turned.the_queue_is_stopped_or_started()
    assert job_state(turned, job) == "running"


def test_a_job_claims_a_card_that_it_can_use_when_its_own_will_not_do(two: House) -> None:
    first, second = (gpu(two, BOB, "always-on", shares=8) for _ in range(2))
    for job in (first, second):
        two.wait(job, "running")
    job = gpu(two, ANN, window=True, argv=["true"])
    mine = window_of(two, job)
    kept_out(two, job, "no room on card")
    gone = next(one for one in (first, second) if card_of(two, one) != mine["card"])
    card = card_of(two, gone)
    two.cancel(gone, grace_s=0.2)
    assert two.wait(job)["outcome"] == "completed"
    moved = views.window(two.platform, mine["id"])
    assert (moved["state"], moved["reason"]) == ("ended", "JobWaits")
    assert f"could start on card {card}" in moved["message"]
    check_windows(two)


def test_a_window_waits_for_its_card_to_be_in_the_pool(two: House) -> None:
    training = gpu(two, BOB, "training", shares=8)
    two.wait(training, "running")
    card = card_of(two, training)
    window = str(verbs.claim_window(two.platform, caller=ANN, card=card, wait=True)["id"])
    verbs.drain(two.platform, card, caller=ME)
    two.cancel(training, grace_s=0.2)
    two.until("it says so", lambda: "in the pool again" in str(views.window(two.platform, window)["message"]))
    assert state(two, window) == "waiting"
    verbs.undrain(two.platform, card, caller=ME)
    until_state(two, window, "active")
    check_windows(two)


def test_a_card_that_comes_back_to_the_pool_is_seen_by_those_whom_a_window_keeps_out(two: House) -> None:
    one, other = (card.id for card in two.platform.cards)
    verbs.drain(two.platform, other, caller=ME)
    window = str(verbs.claim_window(two.platform, caller=ANN, card=one)["id"])
    until_state(two, window, "active")
    outside = gpu(two, BOB, argv=["true"])
    two.wait_reason(outside, "WaitingForWindow")
    verbs.undrain(two.platform, other, caller=ME)
    assert two.wait(outside)["outcome"] == "completed"
    assert state(two, window) == "active"
    check_windows(two)


def test_a_window_on_a_card_that_is_out_is_not_what_others_wait_for(two: House) -> None:
    one, other = (card.id for card in two.platform.cards)
    window = str(verbs.claim_window(two.platform, caller=ANN, card=one)["id"])
    until_state(two, window, "active")
    for card in (one, other):
        verbs.drain(two.platform, card, caller=ME)
    outside = gpu(two, BOB)
    assert "out of the pool" in two.wait_reason(outside, "TopologyPlacementFailed")["message"]
    with pytest.raises(InvalidRequest, match="no card to claim"):
        claim(two, BOB, wait=True)
    check_windows(two)


def test_a_job_claims_its_window_when_there_is_a_card_again(house: House) -> None:
    (card,) = (card.id for card in house.platform.cards)
    verbs.drain(house.platform, card, caller=ME)
    job = gpu(house, ANN, window=True, argv=["true"])
    assert "no card can be claimed" in house.wait_reason(job, "WaitingForWindow")["message"]
    assert views.windows(house.platform) == []
    verbs.undrain(house.platform, card, caller=ME)
    assert house.wait(job)["outcome"] == "completed"
    check_windows(house)


def test_a_job_whose_card_is_taken_out_of_the_pool_claims_another(two: House) -> None:
    training = [gpu(two, BOB, "training", shares=8) for _ in range(2)]
    for one in training:
        two.wait(one, "running")
    job = gpu(two, ANN, window=True, argv=["true"])
    window = window_of(two, job)
    verbs.drain(two.platform, window["card"], caller=ME)
    other = two.until("it has", lambda: (w := window_of(two, job))["card"] != window["card"] and w)
    assert views.window(two.platform, window["id"])["reason"] == "JobWaits"
    two.cancel(next(one for one in training if card_of(two, one) == other["card"]), grace_s=0.2)
    two.wait(job)
    check_windows(two)


def test_residents_leave_too_where_the_job_says_so(house: House) -> None:
    resident = gpu(house, BOB, "registry")
    house.wait(resident, "running")
    job = gpu(house, ANN, window=True, including_resident=True, argv=["sleep", "1"], shares=8)
    house.wait(job, "running")
    (window,) = views.windows(house.platform)
    assert window["including_resident"] is True
    shown = house.wait_reason(resident, "WaitingForWindow")
    assert shown["attempts"][0]["evicted"]["reason"] == "WindowClaimed"
    house.wait(job)
    house.wait(resident, "running")
    check_windows(house)


def test_residents_leave_only_for_a_window(house: House) -> None:
    with pytest.raises(InvalidRequest, match="give window, too"):
        gpu(house, ANN, including_resident=True)
    with pytest.raises(InvalidRequest, match="true or false"):
        gpu(house, ANN, window=True, including_resident="yes")


def test_no_window_opens_for_a_job_whose_room_a_resident_in_line_would_take(house: House) -> None:
    """Another window had sent the resident away, and it is back before the job."""
    resident = gpu(house, BOB, "always-on")
    house.until("it runs", lambda: house.show(resident)["state"] == "running")
    first = gpu(house, ANN, window=True, including_resident=True)
    house.until("it runs", lambda: house.show(first)["state"] == "running")
    second = gpu(house, ANN, window=True, shares=8)
    house.until("it waits", lambda: window_of(house, second)["state"] == "waiting")
    house.cancel(first)
    house.until("the resident is back", lambda: house.show(resident)["state"] == "running")
    kept_out(house, second, "which a window does not ask to leave")
    assert [
        window["opened_at"] for window in views.windows(house.platform, all=True) if window["job_id"] == second
    ] == [None]
    check_windows(house)
