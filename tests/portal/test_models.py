"""The page of models, and the line by which a gateway hears of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tenure.portal.pages.models import steps_of

from .conftest import Door

DOCUMENT = {
    "apiVersion": "tenure.dev/v1",
    "kind": "Model",
    "metadata": {"name": "small"},
    "spec": {"command": [sys.executable, "-P", "-m", "tenure.testing.model_server", "--port", "{port}"]},
}


def page(door: Door) -> str:
    return door.ask("GET", "/models", headers={"Authorization": f"Bearer {door.token}"}, over="tcp").body.decode()


def test_models_are_shown_woken_and_watched(
    open_door: Callable[..., AbstractContextManager[Door]], tmp_path: Path
) -> None:
    with open_door(tmp_path / "home") as door:
        assert "tenure policy schema model" in page(door)
        (tmp_path / "home" / "policy" / "small.json").write_text(json.dumps(DOCUMENT))
        assert door.ask("POST", "/api/v1/policy:reload").status == 200
        assert 'id="model-small"' in page(door)
        assert door.ask("POST", "/api/v1/models/none:wake").status == 404
        woken = door.ask("POST", "/api/v1/models/small:wake", {"cause": "a test"})
        assert woken.json["last_wake"]["cause"] == "a test"
        seen = {"version": 0, "models": [woken.json]}
        while seen["models"][0]["state"] != "ready":
            assert seen["models"][0]["state"] in ("queued", "starting"), seen
            seen = door.ask("GET", f"/api/v1/models:watch?after={seen['version']}&timeout=10").json
        shown = page(door)
        assert "load" in shown
        assert f'href="/jobs/{woken.json["job_id"]}"' in shown
        assert door.ask("POST", "/api/v1/models/small:sleep").json["state"] in ("draining", "asleep")
        told = door.ask("GET", "/api/v1/models/small/advice?windows_s=30&windows_s=7200&days=1&second_is_worth=5").json
        assert [row["idle_after"] for row in told["rows"]] == ["30s", "1h", "2h", "resident"]
        assert (told["recommended"], told["second_is_worth"], told["requests"]) == (None, 5, 0)
        for query, status in (("days=0", 422), ("days=x", 422), ("windows_s=-1", 422), ("second_is_worth=-1", 422)):
            assert door.ask("GET", f"/api/v1/models/small/advice?{query}").status == status, query
        assert door.ask("GET", "/api/v1/models/none/advice").status == 404


def test_the_steps_of_a_wake_are_those_that_are_over() -> None:
    wake = {step + "_at": f"2026-11-30T00:00:0{n}Z" for n, step in enumerate(("asked", "admitted", "started"))}
    assert [step.name for step in steps_of(wake)] == ["queue", "start"]
