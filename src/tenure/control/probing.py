"""Is a model ready?  Its own process has to say so: what answers on its port may be a stranger who was there first."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable

from tenure.telemetry.listeners import Listener, Listeners

__all__ = ["Probe"]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.25
ANSWER_S = 2.0


class Probe:
    """Asks `path` until it answers 2xx, in a thread of its own.

    Calls `ready()` once, or `stranger(who)` once where the port belongs to a process of no other than this run.
    `cancel` ends it; a call that is under way may still come.
    """

    def __init__(
        self,
        *,
        port: int,
        path: str,
        run_dir: str,
        ready: Callable[[], None],
        stranger: Callable[[Listener], None],
    ) -> None:
        self._port, self._path, self._run_dir = port, path, run_dir
        self._ready, self._stranger = ready, stranger
        self._cancelled = threading.Event()
        self._listeners = Listeners()
        self.listening_at: float | None = None  # when something first listened there, `time.time()`
        self.listener: int | None = None  # whose socket it is, once that is known
        threading.Thread(target=self._run, name=f"probe-{port}", daemon=True).start()

    def cancel(self) -> None:
        self._cancelled.set()

    def _run(self) -> None:
        pause = FIRST_PAUSE_S
        known = False
        while not self._cancelled.wait(pause):
            pause = min(LONGEST_PAUSE_S, pause * 1.1)
            status = self._ask()
            if status is None:
                continue
            ready = 200 <= status < 300
            if ready or not known:
                if self.listening_at is None:
                    self.listening_at = time.time()
                who = self._listeners.of(self._port)
                others = [one for one in who if one.run_dir != self._run_dir]
                if self._cancelled.is_set():
                    return
                if others:
                    self._stranger(others[0])
                    return
                known = bool(who)
                self.listener = who[0].pid if who else None
                if ready and known:
                    self._ready()
                    return

    def _ask(self) -> int | None:
        """The status, 0 for an answer that is no HTTP, None where nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_S)
        try:
            connection.request("GET", self._path)
            return connection.getresponse().status
        except ConnectionRefusedError:
            return None
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()
