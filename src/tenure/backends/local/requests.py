"""What the daemon asks of a supervisor: a line in `requests.jsonl`, and a datagram with the same line to wake it.

The line makes the request durable before anybody acts on it (also before there is a supervisor); the datagram makes it
fast, and carries it where the disk is full.  A request that came both ways counts once.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from .journal import append_line, open_lines
from .layout import CONTROL_SOCKET, REQUESTS
from .reading import whole
from .sockets import send_datagram

__all__ = ["Requests", "ask"]


def ask(run_dir: str, request: dict[str, Any]) -> bool:
    """Make a request.  False where no supervisor was there to hear it (it will be found by the next).

    Raises OSError where it could neither be written nor be heard.
    """
    line = {"v": 1, "id": f"{os.getpid()}-{time.monotonic_ns()}", "at": time.time_ns() // 1000, **request}
    trouble: OSError | None = None
    try:
        fd = open_lines(os.path.join(run_dir, REQUESTS))
        try:
            append_line(fd, line)
        finally:
            os.close(fd)
    except OSError as error:
        trouble = error
    heard = send_datagram(os.path.join(run_dir, CONTROL_SOCKET), json.dumps(line).encode())
    if trouble is not None and not heard:
        raise trouble
    return heard


class Requests:
    """The supervisor's side: every request once, in the order in which they were made."""

    def __init__(self, run_dir: str) -> None:
        self._path = os.path.join(run_dir, REQUESTS)
        self._offset = 0
        self._seen: set[str] = set()

    def read(self, datagrams: list[bytes] = []) -> list[dict[str, Any]]:  # noqa: B006  (never changed)
        """What is new, in the file and in `datagrams`."""
        found = []
        for raw in [*self._new_lines(), *datagrams]:
            try:
                request = json.loads(raw)
                known, _ = request["id"], request["kind"]
            except (ValueError, KeyError, TypeError):
                continue
            if known not in self._seen:
                self._seen.add(known)
                found.append(request)
        return found

    def _new_lines(self) -> list[bytes]:
        try:
            data = whole(self._path)[self._offset :]
        except OSError:
            return []
        lines = data.rpartition(b"\n")[0]
        self._offset += len(lines) + 1 if lines else 0
        return lines.split(b"\n") if lines else []
