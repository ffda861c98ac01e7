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
