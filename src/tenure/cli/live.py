"""Views that stay: drawn again at every event of the diary, and at least once a second for the ages in them."""

from __future__ import annotations

import select
import sys
import threading
import time
from collections.abc import Callable

from .call import Call
from .client import Refused, Unreachable
from .follow import events
from .render import note

__all__ = ["redraw"]

LEAST_S = 0.1  # a burst of events is one picture
MOST_S = 1.0


def redraw(call: Call, draw: Callable[[], list[str]]) -> int:
    """Until Ctrl-C.  Off a terminal every picture that differs from the one before is printed below it."""
    rung = threading.Event()
    call.client.get("/status")  # a platform that is not there is said at once, not waited for
    threading.Thread(target=_listen, args=(call, rung), daemon=True).start()
    shown: list[str] = []
    try:
        while True:
            try:
                lines = draw()
            except Unreachable:
                lines = ["(the platform does not answer; waiting for it to come back)"]
            if lines != shown:
                _paint(lines)
                shown = lines
            elif _reader_gone():
                raise BrokenPipeError  # `main` knows what to do
            rung.wait(MOST_S)
            time.sleep(LEAST_S)
            rung.clear()
    except KeyboardInterrupt:
        return 0


def _reader_gone() -> bool:
    """Whether the pipe that we draw into has been closed, which a write would tell, and a picture that stays does not."""
    asked = select.poll()
    asked.register(sys.stdout.fileno(), 0)
    return any(told & select.POLLERR for _, told in asked.poll(0))


def _listen(call: Call, rung: threading.Event) -> None:
    client = call.client.twin()
    try:
        for _ in events(client, after=None):
            rung.set()
    except Refused as error:
        note(f"no live events: {error}")


def _paint(lines: list[str]) -> None:
    if sys.stdout.isatty():
        # Overwritten in place, then the rest cleared: clearing first would flicker.
        sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
    else:
        sys.stdout.write("\n".join(lines) + "\n\n")
    sys.stdout.flush()
