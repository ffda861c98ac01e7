"""Who listens on a TCP port of this machine: a run's own process, or a stranger who was there first; and is anybody heard.

Parsing is pure; `Listeners` reads /proc.  A process that may not be looked at is a stranger without a name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .owners import Owners

__all__ = ["Listener", "Listeners", "connections", "listening_inodes"]

LISTEN, ESTABLISHED = "0A", "01"  # the kernel's numbers for these states
_LOOPBACK = {
    "0100007F",
    "00000000",
    "0" * 32,
    "0" * 24 + "01000000",
    "0000000000000000FFFF00000100007F",
}
"""Addresses that answer a connection to 127.0.0.1 (or ::1), as /proc/net/tcp spells them on a little-endian machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A process that holds a listening socket.  `pid` None: it may not be looked at.  `run_dir` empty: nobody's run."""

    pid: int | None
    command: str = ""
    run_dir: str = ""


def listening_inodes(lines: Iterable[str], port: int) -> set[int]:
    """The sockets that would be given a connection to 127.0.0.1:`port`, from the lines of /proc/net/tcp or tcp6.

    The kernel writes listening sockets before all others (tcp_seq_start), so the rest, which may be thousands, is not read.
    """
    found = set()
    wanted = f"{port:04X}"
    for line in lines:
        fields = line.split(maxsplit=10)
        if len(fields) < 10 or fields[0] == "sl":
            continue
        if fields[3] != LISTEN:
            break
        address, _, number = fields[1].rpartition(":")
        if number == wanted and address in _LOOPBACK:
            found.add(int(fields[9]))
    return found


def connections(lines: Iterable[str], port: int) -> int:
    """How many connections to `port` stand, seen from its side, from the lines of /proc/net/tcp or tcp6."""
    wanted, found = f"{port:04X}", 0
    for line in lines:
        fields = line.split(maxsplit=4)
        found += len(fields) == 5 and fields[3] == ESTABLISHED and fields[1].rpartition(":")[2] == wanted
    return found


class Listeners:
    """Looks up one port at a time.  Not for several threads at once."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._owners = Owners(proc)

    def is_held(self, port: int) -> bool:
        """Does anybody listen there?  Costs one small read; two where nobody listens by IPv4.

        The second is the dear one: with few sockets of IPv6 the kernel walks its whole table for them.
        """
        return any(self._inodes_of(name, port) for name in ("tcp", "tcp6"))

    def connected(self, port: int) -> int:
        """How many connections to that port stand: an idle one that is kept for the next request counts too."""
        found = 0
        for name in ("tcp", "tcp6"):
            try:
                with open(self._proc / "net" / name, encoding="ascii") as lines:
                    found += connections(lines, port)
            except OSError:
                continue
        return found

    def of(self, port: int) -> tuple[Listener, ...]:
        """Everybody who listens there.  A socket whose holder may not be looked at counts as a nameless one."""
        inodes = self._inodes(port)
        if not inodes:
            return ()
        seen: set[int] = set()
        found = []
        for pid, held in self._holders(inodes):
            seen |= held
            owner = self._owners.owner(pid)
            found.append(Listener(pid=pid, command=owner.command, run_dir=owner.run_dir))
        if inodes - seen:
            found.append(Listener(pid=None))
        return tuple(found)

    def _inodes(self, port: int) -> set[int]:
        return self._inodes_of("tcp", port) | self._inodes_of("tcp6", port)

    def _inodes_of(self, name: str, port: int) -> set[int]:
        try:
            with open(self._proc / "net" / name, encoding="ascii") as lines:
                return listening_inodes(lines, port)
        except OSError:
            return set()

    def _holders(self, inodes: set[int]) -> Iterator[tuple[int, set[int]]]:
        for entry in os.listdir(self._proc):
            if not entry.isdecimal():
                continue
            try:
                links = os.scandir(self._proc / entry / "fd")
            except OSError:
                continue
            held = set()
            with links:
                for link in links:
                    try:
                        match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(link.path))
                    except OSError:
                        continue
                    if match is not None and int(match[1]) in inodes:
                        held.add(int(match[1]))
            if held:
                yield int(entry), held
