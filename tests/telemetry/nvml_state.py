"""The state file of the fake NVML library, as Python sees it.  Standard library only: jobs under test import it too.

    state = NvmlState.create(path, cards=2)      # then run a program with state.env(library_dir)
    state.use(0, pid, 4 << 30)                   # a process takes 4 GiB of card 0; gone when the process is
    state.card(1).lost = 1                       # card 1 falls off the bus
    state.xid(1, 79)

The structures are those of fake_nvml/fake_nvml.c.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from pathlib import Path

MAGIC = 0x4C4D5646
CARDS, PROCESSES, EVENTS = 16, 64, 64
GIB = 1 << 30
H200 = ("NVIDIA H200 (fake)", 150_754_820_096)

NOT_SUPPORTED, NO_PERMISSION, GPU_IS_LOST, UNKNOWN = 3, 4, 15, 999


class ProcessState(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_uint), ("ghost", ctypes.c_uint), ("memory", ctypes.c_ulonglong))


class CardState(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 64),
        ("uuid", ctypes.c_char * 64),
        ("memory_total", ctypes.c_ulonglong),
        ("memory_reserved", ctypes.c_ulonglong),
        ("memory_base", ctypes.c_ulonglong),
        ("utilization", ctypes.c_uint),
        ("power_mw", ctypes.c_uint),
        ("temperature", ctypes.c_uint),
        ("lost", ctypes.c_uint),
        ("mig", ctypes.c_uint),
        ("fail_memory", ctypes.c_uint),
        ("fail_processes", ctypes.c_uint),
        ("fail_readings", ctypes.c_uint),
        ("processes", ProcessState * PROCESSES),
    )


class EventState(ctypes.Structure):
    _fields_ = (("card", ctypes.c_uint), ("code", ctypes.c_uint))


class FileState(ctypes.Structure):
    _fields_ = (
        ("magic", ctypes.c_uint),
        ("cards", ctypes.c_uint),
        ("loaded", ctypes.c_uint),
        ("init_code", ctypes.c_uint),
        ("event_head", ctypes.c_ulonglong),
        ("events", EventState * EVENTS),
        ("card", CardState * CARDS),
    )


def card_uuid(index: int) -> str:
    return f"GPU-fa4e0000-0000-4000-8000-{index:012x}"


class NvmlState:
    """A mapped state file.  Changes are seen by every program that looks at it, at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), ctypes.sizeof(FileState))
        self.file = FileState.from_buffer(self._map)

    @classmethod
    def create(cls, path: Path, *, cards: int = 1, model: tuple[str, int] = H200) -> NvmlState:
        """A new file with `cards` healthy, empty cards of one model; change any of them with `card`."""
        path.write_bytes(bytes(ctypes.sizeof(FileState)))
        state = cls(path)
        for index in range(CARDS):
            card = state.file.card[index]
            card.name, card.memory_total = model[0].encode(), model[1]
            card.uuid = card_uuid(index).encode()
            card.power_mw, card.temperature = 75_000, 33
        state.file.cards, state.file.loaded, state.file.magic = cards, 1, MAGIC
        return state

    @classmethod
    def attach(cls) -> NvmlState:
        """The state that this process's own environment names."""
        return cls(Path(os.environ["FAKE_NVML_STATE"]))

    def env(self, library_dir: Path) -> dict[str, str]:
        """What a program needs in its environment to see these cards."""
        return {"LD_LIBRARY_PATH": str(library_dir), "FAKE_NVML_STATE": str(self.path)}

    def card(self, index: int) -> CardState:
        return self.file.card[index]

    def use(self, card: int, pid: int, memory: int, *, ghost: bool = False) -> None:
        """Process `pid` holds `memory` bytes of the card.  It is listed while it lives; a ghost, whether or not."""
        with _locked(self._file.fileno()):
            places = self.file.card[card].processes
            free = next((p for p in places if p.pid == pid), None) or next(p for p in places if _is_free(p))
            free.memory, free.ghost, free.pid = memory, int(ghost), pid

    def free(self, card: int, pid: int) -> None:
        with _locked(self._file.fileno()):
            for place in self.file.card[card].processes:
                if place.pid == pid:
                    place.pid = 0

    def xid(self, card: int, code: int) -> None:
        """The driver reports fault `code`."""
        event = self.file.events[self.file.event_head % EVENTS]
        event.card, event.code = card, code
        self.file.event_head += 1

    def close(self) -> None:
        del self.file  # the mapping cannot be closed while a structure lies over it
        self._map.close()
        self._file.close()


class _locked:
    """Two jobs may take their places at once: the file's lock keeps them apart."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *exc: object) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN)


def _is_free(place: ProcessState) -> bool:
    """Never used, or used by a process that has left."""
    return place.pid == 0 or (not place.ghost and not Path(f"/proc/{place.pid}").exists())
