"""No model is up inside a window: not one that was, not one that is just waking, and not one that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tenure.control import verbs, views

from .conftest import ME, House
from .test_models import declare, model, models, until

__all__ = ["models"]  # the fixture


def test_a_window_while_a_model_wakes_and_one_is_up(models: Callable[..., House], tmp_path: Path) -> None:
    declare(tmp_path / "home", "up", stopTimeout="2s")
    declare(tmp_path / "home", "waking", "--load", "30", startTimeout="1m", stopTimeout="2s", queueName="general")
    house = models()
    verbs.wake(house.platform, "up", caller=ME, cause="a test")
    until(house, "ready", name="up")
    verbs.wake(house.platform, "waking", caller=ME, cause="a test")
    until(house, "starting", name="waking")
    window = verbs.claim_window(house.platform, caller=ME)["id"]
    house.until("it is open", lambda: views.window(house.platform, window)["state"] == "active")
    for name in ("up", "waking"):
        assert model(house, name)["state"] not in ("ready", "starting")
        verbs.wake(house.platform, name, caller=ME, cause="asked for inside")
        job = house.until("it waits", lambda name=name: model(house, name)["job_id"])
        end = views.window(house.platform, window)["ends_at"]
        message = house.until(
            "it says until when", lambda job=job, end=end: end in (m := house.show(job)["message"]) and m
        )
        assert f"window {window} of tester" in message
        assert model(house, name)["state"] == "queued"
    verbs.release_window(house.platform, window, caller=ME)
    until(house, "ready", name="up")


def test_a_window_that_came_and_went_between_two_looks_is_told_of(models: Callable[..., House], tmp_path: Path) -> None:
    """Whoever watches may have read the table while it was there, and would believe in it for as long as nothing is said."""
    declare(tmp_path / "home", "small")
    house = models()
    with house.platform.models._lock:  # no look at the models happens meanwhile
        window = verbs.claim_window(house.platform, caller=ME)["id"]
        house.until("it is open", lambda: views.window(house.platform, window)["state"] == "active")
        seen = house.platform.models.version
        assert model(house)["window"]["id"] == window
        verbs.release_window(house.platform, window, caller=ME)
    house.until("it is told", lambda: house.platform.models.version > seen)
    assert model(house)["window"] is None


def test_a_request_for_a_model_does_not_put_it_in_line_behind_a_long_window(
    models: Callable[..., House], tmp_path: Path
) -> None:
    declare(tmp_path / "home", "small", stopTimeout="1s")
    house = models()
    window = verbs.claim_window(house.platform, caller=ME, length="1h")["id"]
    house.until("it is open", lambda: views.window(house.platform, window)["state"] == "active")
    row = verbs.wake(house.platform, "small", caller=ME, cause="a request", insist=False)
    assert (row["state"], row["job_id"], row["wakes"]) == ("asleep", None, 0)
    assert 3500 < row["retry_after_s"] <= 3600
    row = verbs.wake(house.platform, "small", caller=ME, cause="a person")  # who may know what they do
    until(house, "queued")
    verbs.release_window(house.platform, window, caller=ME)
    until(house, "ready")


def test_an_announced_window_keeps_no_model_asleep(models: Callable[..., House], tmp_path: Path) -> None:
    declare(tmp_path / "home", "small", stopTimeout="1s")
    house = models()
    later = verbs.claim_window(house.platform, caller=ME, begin="now+1hour")["id"]
    verbs.wake(house.platform, "small", caller=ME, cause="a test")
    until(house, "ready")
    assert views.window(house.platform, later)["state"] == "scheduled"
    window = verbs.claim_window(house.platform, caller=ME, begin="now+1seconds", length="10m")["id"]
    house.until("it is open", lambda: views.window(house.platform, window)["state"] == "active")
    assert model(house)["state"] not in ("ready", "starting")
    verbs.release_window(house.platform, window, caller=ME)


def test_a_resident_model_stays_whatever_its_class(models: Callable[..., House], tmp_path: Path) -> None:
    declare(tmp_path / "home", "always", resident=True, stopTimeout="1s")
    house = models()
    run = until(house, "ready", name="always")["run_id"]
    window = verbs.claim_window(house.platform, caller=ME)["id"]
    house.until("it is open", lambda: views.window(house.platform, window)["state"] == "active")
    row = model(house, "always")
    assert (row["state"], row["run_id"], row["window"]) == ("ready", run, None)
    verbs.release_window(house.platform, window, caller=ME)
    window = verbs.claim_window(house.platform, caller=ME, including_resident=True)["id"]
    house.until("it is open", lambda: views.window(house.platform, window)["state"] == "active")
    assert model(house, "always")["window"]["id"] == window
    verbs.release_window(house.platform, window, caller=ME)
    assert until(house, "ready", name="always")["run_id"] != run
