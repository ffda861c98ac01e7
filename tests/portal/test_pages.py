"""The pages in a real browser: complete without JavaScript, live with it, still under the pointer, and nobody's script."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tenure.portal.pages.look import Look

if TYPE_CHECKING:
    from .conftest import Door

STRANGE = '训练 "x" $(rm) \n<script>document.title="owned"</script><img src=x onerror=alert(1)>'


class Visit:
    """A logged-in page that must stay silent: no error, no request to anywhere else, no broken policy."""

    def __init__(self, browser: Browser, door: Door, *, width: int = 1280, javascript: bool = True) -> None:
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": 800}, java_script_enabled=javascript
        )
        self.context.set_default_timeout(10_000)
        self.door = door
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.bytes = 0
        self.page.on(
            "console",
            lambda message: self.complaints.append(message.text) if message.type in ("error", "warning") else None,
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(door.server.login_url())

    def go(self, path: str) -> Page:
        self.page.goto(self.door.at.url.rstrip("/") + path)
        return self.page

    def end(self) -> None:
        self.context.close()
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith((self.door.at.url, "data:"))] == []


@pytest.fixture
def visit(browser: Browser, door: Door) -> Iterator[Visit]:
    visit = Visit(browser, door)
    yield visit
    visit.end()


@pytest.fixture(autouse=True)
def tidy(door: Door) -> Iterator[None]:
    """Every test leaves an empty card behind."""
    yield
    for job in door.ask("GET", "/api/v1/jobs").json["items"]:
        door.ask("POST", f"/api/v1/jobs/{job['id']}:cancel", {"grace_s": 0.2})
        door.wait(job["id"])


def test_a_token_pasted_into_the_form_logs_in(browser: Browser, door: Door) -> None:
    """In a real browser, which says by itself where the form came from."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(door.at.url + "jobs")
    page.fill("input[name=token]", door.token)
    page.click("form button")
    expect(page).to_have_url(door.at.url + "jobs")
    context.close()


def test_an_empty_page_teaches_the_first_command(visit: Visit) -> None:
    page = visit.go("/")
    assert page.inner_text(".empty pre").startswith("tenure run --shares 1 --gpu-memory 2Gi -- ")
    expect(page.locator("text=declared, not measured").first).to_be_visible()
    expect(page.locator("#sign")).to_have_text("live · UTC")
    assert "No job is like that" in visit.go("/jobs?name=nothing").inner_text("main")


def test_the_card_shows_who_holds_it_who_waits_and_who_was_stopped_live(visit: Visit, door: Door) -> None:
    page = visit.go("/")
    batch = door.submit("sleep", "300", name="batch one", shares=5, gpu_memory="4Gi", priority="batch")
    expect(page.locator(f"#h-declared-0-{batch}")).to_contain_text("batch one")
    waiting = door.submit("sleep", "300", name="waits", shares=5, gpu_memory="1Gi", priority="batch")
    expect(page.locator(f"#q-{waiting} .chip")).to_have_text("WaitingForQuota")
    expect(page.locator(f"#q-{waiting} .say").last).to_contain_text("insufficient unused quota")
    training = door.submit("sleep", "300", name="training one", shares=6, gpu_memory="8Gi", priority="training")
    expect(page.locator(f"#h-declared-0-{training}")).to_contain_text("training")
    expect(page.locator(".panel")).to_contain_text(
        re.compile(rf"{batch} batch one was stopped at [\d:]+ for {training}")
    )
    expect(page.locator("svg.shares rect.held").first).to_be_visible()
    expect(page.locator("svg.shares rect.taken")).to_have_count(1)
    page.locator(f"#h-declared-0-{training} a").click()
    expect(page.locator("h1")).to_have_text(f"{training} training one")
    page = visit.go(f"/jobs/{batch}")
    expect(page.locator("#a-1")).to_contain_text("InClusterQueue")
    expect(page.locator(f"#a-1 a[href='/jobs/{training}']")).to_be_visible()
    expect(page.locator("#b-1")).to_contain_text("training one")
    expect(page.locator("main")).to_contain_text(f"Expected start: none, because job {training}, which comes before it")
    taken = page.locator("tr", has=page.locator(f"td:has-text('ran') ~ td a[href='/jobs/{training}']")).first
    expect(taken).to_contain_text("s of it to do again")


def test_strange_names_are_text_everywhere(visit: Visit, door: Door) -> None:
    job = door.submit("sh", "-c", "printf '<script>document.title=\"owned\"</script>\\n'; sleep 30", name=STRANGE, shares=1, gpu_memory="1Gi", project="<b>p</b>")  # fmt: skip
    held = door.submit("true", name=STRANGE, hold=True)
    shown = " ".join(STRANGE.split())
    for path in ("/", "/jobs", f"/jobs/{job}", f"/jobs/{held}", f"/runs/{job}.1", "/jobs/%3Cscript%3E"):
        page = visit.go(path)
        assert "owned" not in page.title().replace(shown, "").replace(STRANGE, "") or "<script>" in page.title()
        assert page.locator("main script, main img, main b").count() == 0
    visit.go(f"/jobs/{job}")
    expect(visit.page.locator("pre.log")).to_contain_text("<script>document.title")
    assert visit.page.title().startswith(job)
    # a path that names nothing answers 404, which the browser mentions
    visit.complaints = [text for text in visit.complaints if "404" not in text]


def test_a_job_from_its_queue_to_its_end_on_one_page(visit: Visit, door: Door, tmp_path: Path) -> None:
    script = rf"printf '10%%\r100%%\n'; printf '\033[31mred\033[0m\n'; until [ -e {tmp_path}/seen ]; do sleep 0.05; done; exit 3"
    job = door.submit("sh", "-c", script, name="life", hold=True)
    page = visit.go(f"/jobs/{job}")
    expect(page.locator(".head .chip")).to_have_text("Suspended")
    door.ask("POST", f"/api/v1/jobs/{job}:release", {})
    expect(page.locator(".head .chip").first).to_have_text("running")
    expect(page.locator("pre.log")).to_contain_text("100%")
    assert "10%\r" not in page.inner_text("pre.log")
    expect(page.locator("pre.log .a31")).to_have_text("red")
    (tmp_path / "seen").touch()
    expect(page.locator(".head .chip").first).to_have_text("failed 3")
    expect(page.locator("#a-1")).to_contain_text("exited with code 3")


def test_the_row_under_the_pointer_stays_where_it_is(visit: Visit, door: Door) -> None:
    """News comes in above it; the page moves, the row does not.  A row that leaves is kept until the pointer has left."""
    for number in range(30):
        door.submit("true", name=f"row {number}", hold=True)
    page = visit.go("/jobs")
    row = page.locator("#live tbody tr").nth(12)
    identity, before = row.get_attribute("id"), row.bounding_box()
    assert before
    row.hover()
    newest = door.submit("true", name="newest", hold=True)
    expect(page.locator(f"#job-{newest}")).to_be_attached()
    after = page.locator(f"#{identity}").bounding_box()
    assert after
    assert abs(after["y"] - before["y"]) < 1.5

    job = str(identity).removeprefix("job-")
    with page.expect_response(
        lambda answer: answer.url.endswith("/jobs") and answer.request.headers.get("hx-request") == "true"
    ):
        door.ask("POST", f"/api/v1/jobs/{job}:cancel")
    expect(page.locator("#sign")).to_have_text("live, held · UTC")
    still = page.locator(f"#{identity}").bounding_box()
    assert still
    assert abs(still["y"] - before["y"]) < 1.5
    page.mouse.move(640, 5)
    expect(page.locator(f"#{identity}")).to_have_count(0)
    expect(page.locator("#sign")).to_have_text("live · UTC")


def test_a_field_being_written_in_survives_news(visit: Visit, door: Door) -> None:
    page = visit.go("/jobs")
    page.fill("#f-name", "half a na")
    job = door.submit("true", name="news", hold=True)
    expect(page.locator(f"#job-{job}")).to_be_attached()
    assert page.input_value("#f-name") == "half a na"
    assert page.evaluate("document.activeElement.id") == "f-name"


def test_the_page_comes_back_after_the_server_did(visit: Visit, door: Door) -> None:
    from tenure.portal.server import PortalServer

    page = visit.go("/")
    expect(page.locator("#sign")).to_have_text("live · UTC")
    door.server.stop()
    expect(page.locator("#sign")).to_have_text("reconnecting · UTC")
    second = PortalServer(door.platform)
    assert second.start().port == door.at.port
    try:
        job = door.submit("sleep", "60", name="after", shares=1, gpu_memory="1Gi")
        expect(page.locator(f"#h-declared-0-{job}")).to_be_visible()
    finally:
        second.stop()
        again = PortalServer(door.platform)
        again.start()
        object.__setattr__(door, "server", again)
    visit.complaints = [text for text in visit.complaints if "ERR_" not in text]


def test_without_javascript_everything_is_there(browser: Browser, door: Door) -> None:
    job = door.submit("sh", "-c", "echo hello; sleep 60", name="plain", shares=1, gpu_memory="1Gi")
    waits = door.submit("sleep", "60", name="queued one", shares=8, gpu_memory="1Gi")
    door.until("it says hello", lambda: door.ask("GET", f"/api/v1/jobs/{job}/logs").body == b"hello\n")
    door.is_(job, "running")
    door.waits(waits)
    visit = Visit(browser, door, javascript=False)
    page = visit.go("/")
    assert page.locator(f"#h-declared-0-{job}").inner_text().find("plain") >= 0
    assert page.locator(f"#q-{waits} .chip").inner_text() == "WaitingForQuota"
    page.click(f"#h-declared-0-{job} a")
    expect(page.locator("pre.log")).to_have_text(re.compile("hello"))
    page.goto(door.at.url + "jobs")
    page.fill("#f-name", "plain")
    page.click("#f-go")
    assert page.locator("tbody tr").count() == 1
    visit.end()


def test_fifty_lines_of_filters_and_pages(visit: Visit, door: Door) -> None:
    array = door.ask("POST", "/api/v1/jobs", {"argv": ["true"], "array": "1-130", "name": "many", "hold": True}).json[
        "id"
    ]
    page = visit.go(f"/jobs?array={array}")
    assert page.locator("tbody tr").count() == 100
    page.click("text=next page →")
    assert page.locator("tbody tr").count() == 30
    page.click("text=← first page")
    assert page.locator("tbody tr").count() == 100
    visit.go(f"/jobs/{array}")
    assert visit.page.locator("tbody tr").count() == 130
    door.ask("POST", f"/api/v1/jobs/{array}:cancel")


def test_a_phone_needs_no_sideways_scrolling(browser: Browser, door: Door) -> None:
    job = door.submit(
        "sh", "-c", "head -c 5000 /dev/zero | tr '\\0' w; sleep 60", name="w" * 200, shares=1, gpu_memory="1Gi"
    )
    door.submit("sleep", "60", name=STRANGE, shares=8, gpu_memory="1Gi", project="p" * 60)
    visit = Visit(browser, door, width=390)
    for path in ("/", "/jobs", f"/jobs/{job}", f"/runs/{job}.1", "/login"):
        page = visit.go(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    visit.end()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_contrasts_with_its_ground(browser: Browser, door: Door, scheme: str) -> None:
    """WCAG AA: 4.5 to 1 for every text on the page, measured as it is painted."""
    door.submit("sh", "-c", r"printf '\033[31mr\033[32mg\033[33my\033[34mb\033[35mm\033[36mc\033[37mw\033[90mk\n'; sleep 60", name="shown", shares=3, gpu_memory="2Gi")  # fmt: skip
    door.submit("sleep", "60", name="waits", shares=8, gpu_memory="1Gi")
    failed = door.submit("false", name="fails")
    door.wait(failed)
    context = browser.new_context(color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(door.server.login_url())
    shown = door.ask("GET", "/api/v1/jobs").json["items"]
    for path in ("", "jobs?all=1", f"jobs/{shown[-1]['id']}", f"jobs/{failed}", f"runs/{failed}.1"):
        page.goto(door.at.url + path)
        poor = page.evaluate(CONTRAST)
        assert poor == [], (scheme, path)
    context.close()


CONTRAST = """() => {
  const parse = (text) => { const m = text.match(/[\\d.]+/g).map(Number); return { c: m.slice(0, 3), a: m[3] ?? 1 }; };
  const light = (c) => { const f = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
  const ground = (e) => { for (; e; e = e.parentElement) { const b = parse(getComputedStyle(e).backgroundColor); if (b.a > 0.99) return b.c; } return [255, 255, 255]; };
  const poor = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); ) {
    const e = node.parentElement;
    if (!node.data.trim() || !e.getClientRects().length || e.closest("option, script, .skip")) continue;
    let style = getComputedStyle(e), back = ground(e), ink = parse(style.color).c;
    if (e instanceof SVGElement) {
      ink = parse(style.fill).c;
      const rect = e.parentElement.querySelector(":scope > rect");
      if (e.tagName === "title") continue;
      if (rect) back = parse(getComputedStyle(rect).fill).c;
    }
    const [a, b] = [light(ink), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.add(e.tagName + "." + (e.className.baseVal ?? e.className) + " " + node.data.trim().slice(0, 30) + " " + ratio.toFixed(2));
  }
  return [...poor];
}"""


def test_the_keyboard_reaches_the_content(visit: Visit, door: Door) -> None:
    job = door.submit("sleep", "60", name="keys", shares=1, gpu_memory="1Gi")
    page = visit.go("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    page.keyboard.press("Enter")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('a')?.getAttribute('href') || ''") == f"/jobs/{job}":
            break
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(f"{job} keys")


def test_the_card_page_is_light(browser: Browser, door: Door) -> None:
    """Everything a first visit loads, as it travels."""
    sizes = {}
    for path in ("/", "/static/tenure.css", "/static/live.js", "/static/htmx.js", "/static/icon.svg"):
        sizes[path] = len(door.ask("GET", path).body)
    assert sum(sizes.values()) < 100_000, sizes
    assert door.ask("GET", "/static/uplot.js").status == 200


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/jobs/99999", 404), ("/runs/9.9", 404), ("/jobs?state=bogus", 422), ("/?hours=x", 422)])  # fmt: skip
def test_an_error_is_a_page_for_people_and_a_problem_for_programs(door: Door, path: str, status: int) -> None:
    page = door.ask("GET", path, headers={"Accept": "text/html,*/*"})
    assert (page.status, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert b"<h1>" in page.body
    program = door.ask("GET", path)
    assert (program.status, program.headers["content-type"]) == (status, "application/problem+json")


def test_many_who_look_at_once_are_one_look(door: Door) -> None:
    look, taken = Look(door.platform), []
    take = look._take
    look._take = lambda: taken.append(1) or time.sleep(0.2) or take()  # type: ignore[method-assign,func-returns-value]
    seen: list[dict[str, Any]] = []
    readers = [threading.Thread(target=lambda: seen.append(look.now())) for _ in range(20)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert len(seen) == 20
    assert len(taken) <= 2
    before = len(taken)
    job = door.submit("sleep", "60", name="news", hold=True)
    assert any(waiting["id"] == job for queue in look.now()["queues"] for waiting in queue["jobs"])
    assert len(taken) == before + 1


def test_metrics_are_drawn(visit: Visit, door: Door) -> None:
    program = (
        "import os\nfrom tenure.sdk.record import RecordWriter\nwriter = RecordWriter(os.environ['TENURE_RUN_DIR'])\n"
        "for n in range(50): writer.metric(n, {'loss': 1 / (n + 1)})\n"
    )
    job = door.submit(sys.executable, "-c", program, name="draws")
    assert door.wait(job)["outcome"] == "completed"
    series = door.ask("GET", f"/api/v1/runs/{job}.1/metrics").json
    assert series["loss"]["x"] == list(range(50))
    page = visit.go(f"/runs/{job}.1")
    expect(page.locator("#plots .uplot canvas")).to_be_visible()
    expect(page.locator("#m-1")).to_contain_text("loss")
