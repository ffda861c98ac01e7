"""Windows at the portal: drawn over the card, announced, listed; and released by nobody but their owner or an operator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, expect

from tenure.portal.pages.timeline import bands

from .test_pages import CONTRAST, STRANGE, Visit, visit

if TYPE_CHECKING:
    from .conftest import Answer, Door

__all__ = ["visit"]  # a fixture

T = datetime(2026, 11, 30, 12, tzinfo=UTC)


def claim(door: Door, **body: Any) -> str:
    answer = door.ask("POST", "/api/v1/windows", body)
    assert answer.status == 201, answer.body
    return str(answer.json["id"])


def until(door: Door, window: str, state: str) -> dict[str, Any]:
    while (row := door.ask("GET", f"/api/v1/windows/{window}").json)["state"] != state:
        door.platform.news.wait(door.platform.news.cursor, 0.2)
    found: dict[str, Any] = row
    return found


@pytest.fixture(autouse=True)
def tidy(door: Door) -> Iterator[None]:
    yield
    for window in door.ask("GET", "/api/v1/windows").json:
        door.ask("POST", f"/api/v1/windows/{window['id']}:release", {})
    for job in door.ask("GET", "/api/v1/jobs").json["items"]:
        door.ask("POST", f"/api/v1/jobs/{job['id']}:cancel", {"grace_s": 0.2})
        door.wait(job["id"])


def test_bands_are_where_the_windows_were() -> None:
    def held(id: str, begin: int, end: int | None) -> dict[str, Any]:
        at = [None if m is None else (T + timedelta(minutes=m)).isoformat() for m in (begin, end)]
        late = (T + timedelta(hours=9)).isoformat()
        return {"window": id, "owner": "ann", "from": at[0], "to": at[1], "ends_at": late, "reason": "Lapsed"}

    rows = [held("w1", -90, -70), held("w2", -70, -45), held("w3", -30, -15), held("w4", -15, None)]
    found = bands(rows, since=T - timedelta(hours=1), until=T)
    assert [(b.window, b.left, b.width, b.active) for b in found] == [
        ("w2", 0.0, 0.25, False),
        ("w3", 0.5, 0.25, False),
        ("w4", 0.75, 0.25, True),
    ]
    assert found[1].says == "window w3 of ann: from 11:30:00 to 11:45:00 (Lapsed)"
    assert found[2].says == "window w4 of ann: from 11:45:00 until 21:00:00"


def test_the_card_shows_who_has_it_until_when_and_who_is_next(visit: Visit, door: Door) -> None:
    page = visit.go("/")
    expect(page.locator("main")).to_contain_text("No card is claimed.")
    model = door.submit("sleep", "300", name="model", shares=1, gpu_memory="1Gi", priority="on-demand")
    expect(page.locator(f"#h-declared-0-{model}")).to_contain_text("model")
    first = claim(door, **{"for": "1h"})
    end = until(door, first, "active")["ends_at"][11:19]
    owner = door.ask("GET", f"/api/v1/windows/{first}").json["owner"]
    expect(page.locator(".panel .chip.on").first).to_have_text(f"window {first} of {owner} until {end}")
    expect(page.locator("svg.shares .band.on")).to_have_count(1)
    expect(page.locator(f"svg.shares a[href='/windows#w-{first}'] text")).to_have_text(f"{first} {owner} until {end}")
    expect(page.locator(f"#q-{model} .chip")).to_have_text("WaitingForWindow")
    second = claim(door, **{"for": "30m", "wait": True})
    third = claim(door, **{"for": "2h", "begin": "now+3hours"})
    begins = door.ask("GET", f"/api/v1/windows/{third}").json["begin_at"][11:19]
    expect(page.locator(".panel")).to_contain_text(f"Window {third} of {owner} begins at {begins} for 2h")
    expect(page.locator(".panel")).to_contain_text(f"Window {second} of {owner}, for 30m, waits its turn")
    expect(page.locator(f"#w-{first}")).to_contain_text(f"tenure window release {first}")
    door.ask("POST", f"/api/v1/windows/{first}:release", {})
    expect(page.locator(f"#w-{second} .chip")).to_have_text("active")
    expect(page.locator("svg.shares .band")).to_have_count(2)
    page.locator("h2 a[href='/windows']").click()
    expect(page.locator("h1")).to_have_text("Windows")
    assert [row.get_attribute("id") for row in page.locator("tbody tr").all()][:3] == [f"w-{w}" for w in (second, third, first)]  # fmt: skip
    expect(page.locator(f"#w-{first} .chip")).to_have_text("Released")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_windows_can_be_read_on_a_phone_and_in_either_light(browser: Browser, door: Door, scheme: str) -> None:
    first = claim(door, **{"for": "1h"})
    until(door, first, "active")
    claim(door, wait=True)
    claim(door, begin="now+3hours", including_resident=True)
    door.submit("sleep", "60", name=STRANGE, shares=1, gpu_memory="1Gi", window=True, hold=True)
    context = browser.new_context(color_scheme=scheme, viewport={"width": 390, "height": 800})  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(door.server.login_url())
    for path in ("", "windows"):
        page.goto(door.at.url + path)
        assert page.evaluate(CONTRAST) == [], (scheme, path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    context.close()


def test_without_javascript_the_windows_are_there(browser: Browser, door: Door) -> None:
    window = claim(door, begin="now+3hours")
    visit = Visit(browser, door, javascript=False)
    assert re.search(f"Window {window} of .* begins at", visit.go("/").inner_text(".panel"))
    latest = visit.page.locator("tr", has_text="WindowClaimed").first
    assert latest.locator(f"a[href='/windows#w-{window}']").inner_text() == window
    assert visit.go("/windows").locator(f"#w-{window} .chip").inner_text() == "scheduled"
    visit.end()


def test_one_that_never_began_has_no_beginning(visit: Visit, door: Door) -> None:
    window = claim(door, begin="now+3hours")
    row = visit.go("/windows").locator(f"#w-{window}")
    begins = row.locator("td").nth(5)
    expect(begins).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
    door.ask("POST", f"/api/v1/windows/{window}:release", {})
    expect(row.locator(".chip")).to_have_text("Released")
    expect(begins).to_have_text("–")


@pytest.mark.parametrize("length", [True, False, 0, -1, 1.5, "", "soon", "0", [], {}, 10**30])
def test_a_length_that_is_none_claims_nothing(door: Door, length: Any) -> None:
    answer = door.ask("POST", "/api/v1/windows", {"for": length})
    assert answer.status in (400, 422), answer.body
    assert "for" in str(answer.json)
    assert door.ask("GET", "/api/v1/windows").json == []


def test_only_its_owner_or_an_operator_lets_go_of_it(door: Door) -> None:
    tokens = {}
    for name in ("ann", "bob"):
        answer = door.ask("POST", "/api/v1/tokens", {"name": name})
        assert answer.status == 201, answer.body
        tokens[name] = str(answer.json["token"])

    def ask(who: str, method: str, path: str, body: Any = None) -> Answer:
        headers = {"Authorization": f"Bearer {tokens[who]}", "Content-Type": "application/json"}
        return door.ask(method, path, body, headers=headers, over="tcp")

    claimed = ask("ann", "POST", "/api/v1/windows", {"for": "1h"})
    assert claimed.status == 201, claimed.body
    window = claimed.json["id"]
    assert claimed.json["owner"] == "ann"
    for verb in (":release", ":renew"):
        refused = ask("bob", "POST", f"/api/v1/windows/{window}{verb}", {})
        assert refused.status == 403, refused.body
        assert "belongs to ann; only its owner or an operator may" in refused.json["detail"]
    assert ask("bob", "GET", f"/api/v1/windows/{window}").json["state"] in ("waiting", "active")
    assert ask("bob", "POST", "/api/v1/windows", {}).status == 409
    assert ask("ann", "POST", f"/api/v1/windows/{window}:release", {}).json["reason"] == "Released"
    other = ask("bob", "POST", "/api/v1/windows", {"for": "1h"}).json["id"]
    ended = door.ask("POST", f"/api/v1/windows/{other}:release", {}).json  # whoever runs the platform
    assert (ended["state"], ended["reason"], ended["owner"]) == ("ended", "Released", "bob")
    assert ask("ann", "POST", "/api/v1/windows/w999:release", {}).status == 404
