"""The pages of models in a real browser: live, without a wake of their own, still under the pointer, and with buttons."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tenure.portal.pages.models import bars_of, steps_of

from .conftest import Door
from .test_pages import CONTRAST, Visit

SERVER = [sys.executable, "-P", "-m", "tenure.testing.model_server", "--port", "{port}"]


@pytest.fixture(scope="module")
def house(door: Door) -> Door:
    """One of each: idle for a moment, for long, loading for ever, failing, and two for one place."""
    declare(door, "brief", idleAfter="6s", queueName="default")
    declare(door, "first", aliases=["default"], adapters=[{"name": "first-sql"}])
    declare(door, "second")
    declare(door, "loading", "--load", "600", queueName="default", startTimeout="20m")
    declare(door, "broken", "--load", "0.1", "--die-loading", "3", queueName="default")
    declare(door, "idle", queueName="default")
    declare(door, "leaving", "--leave-after", "5", queueName="default", stopTimeout="60s")
    journal(door)
    assert door.ask("POST", "/api/v1/policy:reload").status == 200
    return door


def declare(door: Door, name: str, *knobs: str, **spec: Any) -> None:
    body = {"queueName": "large-model", "priorityClassName": "on-demand", "shares": 1, "gpuMemory": "1Gi"}
    body |= {"command": [*SERVER, *knobs], "stopTimeout": "5s"} | spec  # type: ignore[dict-item]
    document = {"apiVersion": "tenure.dev/v1", "kind": "Model", "metadata": {"name": name}, "spec": body}
    (door.platform.settings.home / "policy" / f"{name}.json").write_text(json.dumps(document))


def journal(door: Door) -> None:
    """A week of somebody who asks the model `first` each half hour."""
    now = time.time()
    rows = [
        {"at": round(now - k * 1800, 3), "model": "first", "status": 200, "held_s": 0.0, "seconds": 1.0, "run": "1.1"}
        for k in range(7 * 48, 0, -1)
    ]
    path = door.platform.settings.home / "gateway" / "requests.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def model(door: Door, name: str) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in door.ask("GET", "/api/v1/models").json if row["name"] == name)
    return row


def until(door: Door, name: str, *states: str, timeout: float = 20) -> dict[str, Any]:
    version, deadline = 0, time.monotonic() + timeout
    while (row := model(door, name))["state"] not in states:
        assert time.monotonic() < deadline, row
        version = door.ask("GET", f"/api/v1/models:watch?after={version}&timeout=2").json["version"]
    return row


def wake(door: Door, name: str) -> None:
    assert door.ask("POST", f"/api/v1/models/{name}:wake").status == 200


def chip(page: Page, name: str) -> Any:
    return page.locator(f"#model-{name} .head .chip").first


@pytest.fixture
def visit(browser: Browser, house: Door) -> Iterator[Visit]:
    visit = Visit(browser, house)
    yield visit
    visit.end()
    for row in house.ask("GET", "/api/v1/models").json:
        house.ask("POST", f"/api/v1/models/{row['name']}:sleep")
    for row in house.ask("GET", "/api/v1/models").json:
        until(house, row["name"], "asleep", "failed")


def test_an_open_page_wakes_nobody_and_moves_no_idle_clock(visit: Visit, house: Door) -> None:
    """With the page open, and looked at again every two seconds, a model of six idle seconds sleeps on time."""
    page = visit.go("/models")
    expect(chip(page, "idle")).to_have_text("asleep")
    wake(house, "brief")
    ends = datetime.fromisoformat(until(house, "brief", "ready")["sleeps_at"])
    clock = page.locator("#model-brief [data-until]")
    expect(clock).to_be_visible()
    first = clock.inner_text()
    expect(clock).not_to_have_text(first)
    for path in ("/models", "/models/brief", "/models/brief?advice=1", "/models/default"):
        assert house.ask("GET", path).status in (200, 303)
        row = model(house, "brief")
        if row["state"] == "ready":
            assert abs(datetime.fromisoformat(row["sleeps_at"]) - ends) < timedelta(seconds=1), path
    until(house, "brief", "asleep")
    assert datetime.now(UTC) > ends - timedelta(seconds=1)
    expect(chip(page, "brief")).to_have_text("asleep")
    assert (model(house, "brief")["wakes"], model(house, "idle")["wakes"], model(house, "first")["wakes"]) == (1, 0, 0)


def test_every_state_is_shown_live_with_its_why(visit: Visit, house: Door) -> None:
    page = visit.go("/models")
    for name in ("first", "loading", "broken"):
        wake(house, name)
    expect(chip(page, "first")).to_have_text("ready")
    expect(page.locator("#model-first .key")).to_contain_text("load ")
    expect(page.locator("#model-first .key")).to_contain_text("together ")
    expect(page.locator("#model-first svg.steps rect")).to_have_count(4)
    wake(house, "second")
    expect(chip(page, "second")).to_have_text("queued")
    expect(page.locator("#model-second .why")).to_contain_text("held by first")
    job = model(house, "second")["job_id"]
    expect(page.locator(f"#model-second .why a[href='/jobs/{job}']")).to_be_visible()
    expect(page.locator("#model-second .key")).to_contain_text("so far")
    expect(chip(page, "loading")).to_have_text("starting")
    expect(page.locator("#model-loading svg.steps rect.open")).to_be_visible()
    expect(chip(page, "broken")).to_have_text("failed")
    expect(page.locator("#model-broken .why .chip.bad")).to_be_visible()
    expect(page.locator("#model-first")).to_contain_text("also default")
    expect(page.locator("#model-first")).to_contain_text("adapters first-sql")
    assert page.locator("#model-first svg.hours rect.bar").count() == 24
    expect(page.locator("#model-first")).to_contain_text(re.compile(r"4[678] since \d\d:00"))
    run = model(house, "first")["run_id"]
    page.click(f"#model-first a[href='/runs/{run}']")
    expect(page.locator("h1")).to_contain_text(run)


def test_one_that_leaves_is_draining_until_everything_of_it_has_left(visit: Visit, house: Door) -> None:
    page = visit.go("/models/leaving")
    wake(house, "leaving")
    expect(chip(page, "leaving")).to_have_text("ready")
    expect(page.locator("#model-leaving [data-until]")).to_contain_text("in 59 min")
    page.click("#sleep-leaving")
    expect(chip(page, "leaving")).to_have_text("draining")
    expect(page.locator("#sleep-leaving")).to_be_disabled()
    expect(chip(page, "leaving")).to_have_text("asleep")
    expect(page.locator("table.stack")).to_contain_text("leaving is draining")


def test_what_is_in_flight_and_held_is_shown_without_a_line_in_the_diary(visit: Visit, house: Door) -> None:
    page = visit.go("/models")
    wake(house, "first")
    expect(chip(page, "first")).to_have_text("ready")
    seen = {"models": {"first": {"in_flight": 3, "held": 2, "active": True, "first_token": True}}}
    assert house.ask("POST", "/api/v1/models:report", seen).status == 204
    facts = page.locator("#model-first .facts")
    expect(facts).to_contain_text(re.compile(r"In flight\s*3"))
    expect(facts).to_contain_text(re.compile(r"Held\s*2"))
    expect(facts).to_contain_text("not while in flight")


def test_a_window_says_when_a_model_can_wake(visit: Visit, house: Door) -> None:
    claimed = house.ask("POST", "/api/v1/windows", {"for": "30m"})
    assert claimed.status == 201, claimed.body
    try:
        page = visit.go("/models")
        wake(house, "first")
        expect(page.locator("#model-first .why")).to_contain_text(f"window {claimed.json['id']}")
        expect(page.locator("#model-first .why [data-until]")).to_contain_text("in 29 min")
        expect(page.locator("#model-first .why")).to_contain_text("has the card; it can wake in")
    finally:
        house.ask("POST", f"/api/v1/windows/{claimed.json['id']}:release")


def test_the_buttons_wake_and_put_to_sleep_without_leaving_the_page(visit: Visit, house: Door) -> None:
    page = visit.go("/models")
    page.evaluate("window.same = true")
    page.click("#wake-idle")
    expect(chip(page, "idle")).to_have_text("ready")
    woken = model(house, "idle")["last_wake"]
    assert woken["cause"] == "a button on the page"
    expect(page.locator("#wake-idle")).to_be_disabled()
    page.click("#sleep-idle")
    expect(chip(page, "idle")).to_have_text("asleep")
    assert page.evaluate("window.same") is True
    assert page.url.endswith("/models")


def test_what_is_under_the_pointer_stays_where_it_is(visit: Visit, house: Door) -> None:
    """Sentences of why come and go above it; the button does not move."""
    page = visit.go("/models")
    page.set_viewport_size({"width": 1280, "height": 500})
    button = page.locator("#sleep-second")
    button.scroll_into_view_if_needed()
    button.hover(force=True)
    before = button.bounding_box()
    wake(house, "broken")
    wake(house, "first")
    expect(chip(page, "broken")).to_have_text("failed")
    expect(chip(page, "first")).to_have_text("ready")
    after = button.bounding_box()
    assert before
    assert after
    assert abs(after["y"] - before["y"]) < 1.5
    assert abs(after["x"] - before["x"]) < 1.5


def test_without_javascript_there_are_forms_and_numbers(browser: Browser, house: Door) -> None:
    visit = Visit(browser, house, javascript=False)
    page = visit.go("/models")
    page.click("#wake-idle")
    assert page.url.endswith("/models#model-idle")
    until(house, "idle", "ready")
    page.click("#sleep-idle")
    until(house, "idle", "asleep")
    visit.go("/models/first")
    page.click("#numbers")
    assert page.locator("#w-30m").count() == 1
    expect(page.locator("#advised")).to_contain_text(re.compile("costs least|too little is known"))
    visit.end()


def test_advice_is_drawn_and_said(visit: Visit, house: Door) -> None:
    page = visit.go("/models/first")
    expect(page.locator("#advice canvas")).to_be_visible()
    expect(page.locator("#advised")).to_contain_text(re.compile("costs least|too little is known"))
    expect(page.locator("#advice .u-legend")).to_contain_text("share-hours held a day")


def test_a_user_sees_no_button_and_may_press_none(house: Door) -> None:
    made = house.ask("POST", "/api/v1/tokens", {"name": "reader", "role": "user"}).json
    bearer = {"Authorization": f"Bearer {made['token']}"}
    shown = house.ask("GET", "/models", headers=bearer, over="tcp")
    assert shown.status == 200
    assert b"model-idle" in shown.body
    assert b"wake-idle" not in shown.body
    assert house.ask("POST", "/models/idle/wake", headers=bearer, over="tcp").status == 403
    assert house.ask("POST", "/models/idle/burn").status == 422
    assert house.ask("POST", "/models/nobody/wake").status == 404
    foreign = {"Authorization": f"Bearer {house.token}", "Origin": "http://evil.example"}
    assert house.ask("POST", "/models/idle/wake", headers=foreign, over="tcp").status == 403
    assert house.ask("GET", "/models/nobody").status == 404
    assert house.ask("GET", "/models/nobody/advice").status == 404
    assert house.ask("GET", "/models/default/advice").json["model"] == "first"
    assert model(house, "idle")["state"] == "asleep"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_a_phone(browser: Browser, house: Door, scheme: str) -> None:
    wake(house, "broken")
    wake(house, "loading")
    until(house, "broken", "failed")
    context = browser.new_context(color_scheme=scheme, viewport={"width": 390, "height": 800})  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(house.server.login_url())
    for path in ("models", "models/first?advice=1", "models/broken"):
        page.goto(house.at.url + path)
        assert page.evaluate(CONTRAST) == [], (scheme, path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    context.close()
    house.ask("POST", "/api/v1/models/loading:sleep")
    until(house, "loading", "asleep")


def test_steps_are_parts_of_the_whole_and_one_may_be_open() -> None:
    wake = {
        "asked_at": "2026-11-30T00:00:00Z",
        "admitted_at": "2026-11-30T00:00:03Z",
        "started_at": "2026-11-30T00:00:04Z",
    }
    steps = steps_of(wake, state="starting", now="2026-11-30T00:00:10Z")
    assert [(s.name, s.took, s.open) for s in steps] == [("queue", "3.0 s", False), ("start", "1.0 s", False), ("listen", "6.0 s", True)]  # fmt: skip
    assert sum(s.width for s in steps) == pytest.approx(1)
    assert [s.left for s in steps] == pytest.approx([0, 0.3, 0.4])
    assert [s.name for s in steps_of(wake, state="failed", now="2026-11-30T00:00:10Z")] == ["queue", "start"]
    assert steps_of({}) == []
    ready = wake | {
        "listening_at": "2026-11-30T00:00:05Z",
        "ready_at": "2026-11-30T00:00:09Z",
        "first_token_at": "2026-11-30T03:00:00Z",
    }
    assert [s.name for s in steps_of(ready | {"cause": "asked to"})] == ["queue", "start", "listen", "load"]
    assert steps_of(ready | {"cause": "POST /v1/embeddings"})[-1].name == "first token"
    jumped = steps_of({"asked_at": "2026-11-30T00:00:09Z", "admitted_at": "2026-11-30T00:00:03Z"})
    assert [(s.took, s.width) for s in jumped] == [("0 ms", 1.0)], "a clock that was set back makes no step negative"


def test_bars_are_the_hours_of_the_clock() -> None:
    bars = bars_of([0] * 22 + [4, 1], now=datetime(2026, 11, 30, 0, 40, tzinfo=UTC))
    assert [b.says for b in bars[-2:]] == ["23:00: 4 requests", "00:00: 1 request so far"]
    assert [b.height for b in bars[-2:]] == [1.0, 0.25]
