"""Ports of 127.0.0.1 for model servers: which ones nobody listens on, and that no other platform gives to a model of its own.

A port is chosen before its server binds it, and stays a model's own while that waits for its turn again.  Several
platforms may live on one machine, so what one of them has given is kept under a name that all of them see: an abstract
Unix socket, which needs no file and goes with the process that has it.
"""

from __future__ import annotations

import random
import socket
from contextlib import suppress

from tenure.domain.errors import Unavailable

__all__ = ["PORTS", "Ports"]

PORTS = range(20_000, 32_000)  # below what the kernel gives to outgoing connections, so that none of them is in the way
TRIES = 200


class Ports:
    """Those that one platform has given.  Under the lock of `Models`."""

    def __init__(self, among: range = PORTS) -> None:
        self._among = among
        self._given: dict[int, socket.socket] = {}

    def give(self) -> int:
        """One that nobody listens on now, and that is not given again before it is taken back.

        Nothing keeps strangers from it until the server binds it; who listens there is looked at before a request is
        sent.  Raises Unavailable where none was found.
        """
        for port in random.sample(self._among, min(TRIES, len(self._among))):
            if port not in self._given and _is_free(port) and self.keep(port):
                return port
        raise Unavailable(
            f"no free port between {self._among.start} and {self._among.stop - 1} for a model", code="NoFreePort"
        )

    def keep(self, port: int) -> bool:
        """Also one that an earlier daemon gave.  False: another platform has it."""
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0tenure model port {port}")
        except OSError:
            name.close()
            return False
        self._given[port] = name
        return True

    def take_back(self, port: int | None) -> None:
        """Its server has gone, or never came.  One that was not given: nothing."""
        with suppress(KeyError):
            self._given.pop(port or 0).close()

    def close(self) -> None:
        """All of them: servers listen on theirs, and the next daemon keeps what it adopts."""
        while self._given:
            self._given.popitem()[1].close()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
