"""A card that the driver reports as gone leaves the pool by itself: a real daemon before a library the test steers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nvml_fixtures import FakeNvml

    from .conftest import UnixConnection


def test_work_moves_off_a_card_that_fell_off_the_bus(
    fake_nvml: Callable[..., FakeNvml], tmp_path: Path, unix_connection: type[UnixConnection]
) -> None:
    machine = fake_nvml(cards=2)
    home = tmp_path / "home"
    ready, tell = os.pipe()
    daemon = subprocess.Popen(
        [sys.executable, "-m", "tenure.portal.daemon", "--ready-fd", str(tell)],
        env=machine.environ(TENURE_HOME=str(home)),
        pass_fds=[tell],
    )
    os.close(tell)

    def ask(method: str, path: str, body: Any = None) -> Any:
        connection = unix_connection(home / "daemon" / "api.sock")
        connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body))
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def until(what: str, holds: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 20
        while not (found := holds()):
            assert time.monotonic() < deadline, what
            time.sleep(0.05)
        return found

    try:
        with os.fdopen(ready) as pipe:
            assert json.loads(pipe.readline())["ready"]
        job = ask("POST", "/jobs", {"argv": ["sleep", "60"], "shares": 1, "gpu_memory": "8Gi"})["id"]
        until("it runs", lambda: ask("GET", f"/jobs/{job}")["state"] == "running")
        cards = ask("GET", "/cards")
        (at,) = [number for number, card in enumerate(cards) if card["holders"]]
        machine.state.xid(at, 31)  # a program's own fault
        machine.state.xid(at, 79)
        machine.state.card(at).lost = 1
        gone = until("it is out", lambda: ask("GET", "/cards")[at]["cordon"])
        assert (gone["by"], gone["failed"], "79" in gone["reason"]) == ("driver", True, True)
        until("it runs again", lambda: len(ask("GET", f"/jobs/{job}")["attempts"]) == 2)
        assert ask("GET", f"/jobs/{job}")["attempts"][0]["evicted"]["reason"] == "NodeFailures"
        until("elsewhere", lambda: [h["id"] for h in ask("GET", "/cards")[1 - at]["holders"]] == [job])
        told = [e["data"] for e in ask("GET", "/events?limit=500") if e["kind"] == "CardsChanged"]
        assert [(d["xid"], d.get("failed", False)) for d in told] == [(31, False), (79, True)]
        machine.state.card(at).lost = 0
        back = ask("POST", f"/cards/{cards[at]['id']}:undrain", {})
        assert (back["cordoned"], back["cordon"]) == (False, None)
        assert ask("POST", "/cards/9:drain", {"move": "now"})["status"] == 422
        assert ask("POST", "/cards/9:drain", {})["status"] == 404
    finally:
        daemon.terminate()
        assert daemon.wait(20) == 0
