"""What a page gives to copy does what the page shows, and changes nothing."""

from __future__ import annotations

import re
from html import unescape

from .conftest import Door


def commands(door: Door, path: str) -> list[str]:
    shown = door.ask("GET", path, headers={"Accept": "text/html"})
    assert shown.status == 200, shown.body
    return [unescape(found) for found in re.findall(r"<code>(tenure [^<]*)</code></span>", shown.body.decode())]


def test_a_filtered_list_of_jobs_is_filtered_in_the_terminal_too(door: Door) -> None:
    door.wait(door.submit("true", name="it's one of those", project="a"))
    query = "all=1&project=a&name=it%27s+one+of+those&state=ended"
    assert commands(door, f"/jobs?{query}") == [
        """tenure ps -a --state ended --project a --name 'it'"'"'s one of those'"""
    ]
    assert commands(door, "/jobs?all=1") == ["tenure ps -a"]


def test_a_log_is_the_one_that_is_looked_at(door: Door) -> None:
    job = door.submit("sh", "-c", 'echo "$RANK"; test "$TENURE_ATTEMPT" = 2', gang="2", backoff_limit=1)
    door.wait(job)
    assert f"tenure logs {job} --stderr --attempt 1 --task 1" in commands(
        door, f"/jobs/{job}?stream=stderr&attempt=1&task=1"
    )
    assert f"tenure logs {job} --stdout --attempt 2" in commands(door, f"/jobs/{job}")


def test_one_that_is_held_from_the_start_says_how_it_is_let_go(door: Door) -> None:
    job = door.submit("true", hold=True)
    said = f"held; `tenure release {job}` lets it be considered"
    assert door.ask("GET", f"/api/v1/jobs/{job}").json["message"] == said
    queues = door.ask("GET", "/api/v1/queues").json
    assert said in [one["message"] for queue in queues for one in queue["jobs"] if one["id"] == job]
    page = door.ask("GET", f"/jobs/{job}", headers={"Accept": "text/html"}).body.decode()
    assert "asks –" not in page
    assert "no card, batch" in door.ask("GET", "/", headers={"Accept": "text/html"}).body.decode()
    door.ask("POST", f"/api/v1/jobs/{job}:cancel", {})
