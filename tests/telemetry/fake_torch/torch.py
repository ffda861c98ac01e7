"""A stand-in for torch: as much of it as a job needs to hold memory of a fake card (see nvml_state.py).

Like CUDA it sees the cards of CUDA_VISIBLE_DEVICES alone, holds a context beside its tensors, and refuses what does
not fit.  Memory goes back when a tensor is dropped, or when the process ends, however it ends.
"""

from __future__ import annotations

import os
import types
import weakref

from nvml_state import NvmlState

CONTEXT = 512 << 20
uint8 = "uint8"

_held = 0


class OutOfMemoryError(RuntimeError):
    pass


def _cards() -> list[int]:
    state = _state()
    every = [state.card(index).uuid.decode() for index in range(state.file.cards)]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(range(len(every)))
    return [every.index(uuid) for uuid in visible.split(",") if uuid in every]


def _state() -> NvmlState:
    global _opened  # noqa: PLW0603 - one mapping per process, like a driver's
    if _opened is None:
        _opened = NvmlState.attach()
    return _opened


_opened: NvmlState | None = None


def _hold(change: int) -> None:
    global _held  # noqa: PLW0603 - what this process holds
    card = _cards()[0]
    _held += change
    _state().use(card, os.getpid(), CONTEXT + _held)


def _free() -> int:
    card = _state().card(_cards()[0])
    return int(card.memory_total - card.memory_base - sum(p.memory for p in card.processes if p.pid and _lives(p.pid)))


def _lives(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


class Tensor:
    def __init__(self, size: int) -> None:
        self._size = size
        weakref.finalize(self, _hold, -size).atexit = False

    def numel(self) -> int:
        return self._size

    def fill_(self, value: int) -> Tensor:
        return self


def empty(size: int, *, dtype: str, device: str) -> Tensor:
    assert (dtype, device) == (uint8, "cuda")
    cuda.init()
    if size > _free():
        raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes; {_free()} are free.")
    _hold(size)
    return Tensor(size)


def _properties(device: int) -> types.SimpleNamespace:
    card = _state().card(_cards()[device])
    return types.SimpleNamespace(
        uuid=card.uuid.decode().removeprefix("GPU-"), name=card.name.decode(), total_memory=card.memory_total
    )


cuda = types.SimpleNamespace(
    OutOfMemoryError=OutOfMemoryError,
    is_available=lambda: bool(_cards()),
    device_count=lambda: len(_cards()),
    init=lambda: _hold(0),
    synchronize=lambda: None,
    get_device_properties=_properties,
)
