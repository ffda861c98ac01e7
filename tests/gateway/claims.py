"""Windows for these tests: claims over REST, and what the diary must say about every one of them afterwards."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from .conftest import Answer, Home, eventually


class Windows:
    """Claims over REST; what is left at the end is released."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def claim(self, length: str, **body: Any) -> dict[str, Any]:
        window: dict[str, Any] = self._home.rest("POST", "/windows", {"for": length, **body})
        return window

    def look(self, id: str) -> dict[str, Any]:
        window: dict[str, Any] = self._home.rest("GET", f"/windows/{id}")
        return window

    def until(self, id: str, *states: str) -> dict[str, Any]:
        found: dict[str, Any] = eventually(lambda: (w := self.look(id))["state"] in states and w)
        return found

    def release(self, id: str) -> None:
        self._home.rest("POST", f"/windows/{id}:release")

    def clear(self) -> None:
        for window in self._home.rest("GET", "/windows"):
            self.release(window["id"])


def told(answer: Answer, window: dict[str, Any]) -> None:
    """It was refused with the window's end in its words and in its header."""
    assert (answer.status, answer.error["code"]) == (503, "card_in_window")
    assert f"window {window['id']} of {window['owner']}" in answer.error["message"]
    until = re.search(r"until (\S+Z)", answer.error["message"])  # of a card that is being cleared: at least until then
    assert until is not None
    assert until[1] == window["ends_at"] or f"{until[1]} at least" in answer.error["message"]
    assert until[1] <= window["ends_at"]
    end = datetime.fromisoformat(until[1]).timestamp()  # as it was said between the question and the answer
    assert end - answer.at - 5 < int(answer.headers["retry-after"]) < end - answer.asked_at + 5


def check_nothing_wakes_inside(home: Home, names: set[str]) -> None:
    """By the diary: one holder at a time; while there is one, no job of these models is admitted and none becomes ready;
    and a card is given to a window only when every one of them that had it has left."""
    events = home.diary()
    holder = ""
    up: dict[str, str] = {}
    jobs = {e["job_id"]: e["data"]["model"] for e in events if e["kind"] == "ModelWoken"}
    for event in events:
        match event["kind"]:
            case "WindowOpened":
                assert not holder, event
                assert not up, (event, up)
                holder = event["data"]["window"]
            case "WindowEnded" if event["data"]["window"] == holder:
                holder = ""
            case "JobAdmitted" if jobs.get(event["job_id"]) in names:
                assert not holder, event
                up[event["job_id"]] = jobs[event["job_id"]]
            case "JobRequeued" | "JobEnded":
                up.pop(event["job_id"], None)
            case "ModelChanged" if event["data"]["model"] in names:
                assert not holder or event["data"]["state"] not in ("starting", "ready"), event
