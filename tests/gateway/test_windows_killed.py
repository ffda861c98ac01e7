"""A window meets the worst of days: the wall clock jumps and the daemon is killed, in every phase of a claim.

All processes are real; the clock of everything that the platform starts is read through a file that the test writes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from .claims import Windows, check_nothing_wakes_inside
from .conftest import PATIENCE_S, Home, alive, eventually

BACK, FORTH = -7200, 86_400
CLOCK = """\
import time
_ns, _s = time.time_ns, time.time
def _shift():
    try:
        return int(open(%r).read())
    except (OSError, ValueError):
        return 0
time.time_ns = lambda: _ns() + _shift() * 10**9
time.time = lambda: _s() + _shift()
"""


class Lab:
    """One platform whose clock can jump and whose daemon can be killed."""

    def __init__(self, folder: Path) -> None:
        self._shift = folder / "shift"
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(CLOCK % str(self._shift))
        self.home = Home(folder / "home", {"PYTHONPATH": str(folder / "site")})
        self.home.up()
        self.windows = Windows(self.home)
        self._starts = folder / "starts"

    def declare(self, name: str, *knobs: str, **spec: Any) -> None:
        self.home.declare(name, "--starts", str(self._starts), *knobs, stopTimeout="3s", **spec)

    def servers(self) -> list[int]:
        """Of all that were ever started, those that live."""
        pids = self._starts.read_text().split() if self._starts.exists() else []
        return [int(pid) for pid in pids if alive(int(pid), str(self._starts))]

    def jump(self, seconds: int) -> None:
        self._shift.write_text(str(seconds))

    def opened_before_jump(self, window: str) -> bool:
        """By the stamp of its opening: it has the clock of everybody else."""
        opened = [event for event in self.home.events("WindowOpened") if event["data"]["window"] == window]
        return any(datetime.fromisoformat(event["at"]).timestamp() < time.time() for event in opened)

    def kill_and_restart(self) -> None:
        self.home.kill()
        self.home.up()

    def ask_in_the_background(self, model: str, **body: Any) -> threading.Thread:
        """A client that may hear anything, and is not to be left without an end."""

        def ask() -> None:
            with suppress(OSError, ValueError, HTTPException):
                self.home.chat(model, **body)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        return thread


@pytest.fixture(scope="module")
def shared_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("killed"))
    try:
        yield lab
    finally:
        lab.home.tenure("down")


@pytest.fixture
def lab(shared_lab: Lab) -> Iterator[Lab]:
    yield shared_lab
    shared_lab.jump(0)
    shared_lab.windows.clear()
    shared_lab.home.forget()


@pytest.mark.parametrize("jump", [BACK, FORTH])
@pytest.mark.parametrize("phase", ["wakes", "streams", "waits in line", "holds"])
def test_one_holder_and_no_model_inside(lab: Lab, phase: str, jump: int) -> None:
    home, windows = lab.home, lab.windows
    name = phase.partition(" ")[0] + ("-back" if jump == BACK else "-forth")
    lab.declare(name, *(("--load", "20", "--leave-after", "2") if phase == "wakes" else ("--chunk-delay", "0.2")))
    home.reload()
    asking = [lab.ask_in_the_background(name, stream=phase == "streams", chunks=100)]
    home.until(name, "starting" if phase == "wakes" else "ready")
    if phase == "streams":
        eventually(lambda: home.model(name)["in_flight"])
    first = windows.claim("1h", wait=True)["id"]
    second = windows.claim("30m", wait=True)["id"]
    if phase in ("waits in line", "holds"):
        windows.until(first, "active")
    before = windows.look(first)
    lab.jump(jump)
    asking.append(lab.ask_in_the_background(name))
    if phase != "waits in line":
        lab.kill_and_restart()
    asking.append(lab.ask_in_the_background(name))
    # A clock that was put forward over a restart has the end of a window that was open behind it; the next in line follows
    # at once.  Where the card is still being cleared, its window may open just before the jump: the diary says whether.
    over = jump == FORTH and phase != "waits in line" and lab.opened_before_jump(first)
    assert over or phase != "holds" or jump == BACK
    holder = second if over else first
    window = windows.until(holder, "active")
    assert lab.servers() == []
    if phase == "waits in line":
        assert window["ends_at"] == before["ends_at"]  # nobody was restarted: nothing has moved
    for id in (first, second):
        assert windows.look(id)["state"] == ("active" if id == holder else "ended" if over else "waiting")
    eventually(lambda: home.model(name)["window"])
    answer = home.chat(name)
    assert (answer.status, answer.error["code"]) == (503, "card_in_window")
    assert 0 < int(answer.headers["retry-after"]) <= 3600
    assert lab.servers() == []
    for thread in asking:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    lab.jump(0)  # and back again, with a window open
    windows.clear()
    if phase != "wakes":
        eventually(lambda: home.chat(name).status == 200)
    check_nothing_wakes_inside(home, {name})
