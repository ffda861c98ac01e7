"""The one module that speaks to NVML, through nvidia-ml-py.  It only reads: no setting of a card is ever changed.

A session is one reference to the library: NVML counts them, so sessions may overlap and each must be closed once.
Every call is safe from any thread while its session is open.  nvidia-ml-py is imported on the first `open`, not before.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from tenure.domain.ids import CardId, Instant

__all__ = ["CardSample", "FoundCard", "GpuProcess", "Nvml", "NvmlUnavailable"]

T = TypeVar("T")
Handle = Any  # an opaque pointer of nvidia-ml-py


class NvmlUnavailable(Exception):
    """There is no NVML to talk to; the text says why, and what would bring it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCard:
    """A card that NVML reports, or (`measured` False) one that somebody declared.  Memory is in bytes.

    `reserved` is what the driver keeps for itself: no process can have it.  `shares` is set for a declared card.
    """

    uuid: str
    index: int
    name: str
    memory: int
    reserved: int = 0
    driver: str = ""
    pci_bus_id: str = ""
    measured: bool = True
    shares: int | None = None

    @property
    def id(self) -> CardId:
        return CardId(self.uuid)

    @property
    def usable_memory(self) -> int:
        """Bytes that jobs can be promised."""
        return max(0, self.memory - self.reserved)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process with a context on the card.  `memory` is in bytes; None where the driver does not tell."""

    pid: int
    memory: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSample:
    """One look at one card.  None means *not known*: the card does not tell, or the call failed (then `error` says so).

    Units: bytes, percent, degrees Celsius, watts.  `measured` is False for a declared card, which has no readings.
    `lost`: the library answers and the card does not.
    """

    card: CardId
    at: Instant
    memory_total: int | None = None
    memory_used: int | None = None
    utilization: int | None = None
    temperature: int | None = None
    power: float | None = None
    processes: tuple[GpuProcess, ...] | None = None
    error: str = ""
    measured: bool = True
    lost: bool = False


class Nvml:
    """An open session.  `Nvml.open()` or `with Nvml.open() as nvml`."""

    def __init__(self, api: ModuleType) -> None:
        self._api: Any = api
        self._open = True

    @classmethod
    def open(cls) -> Nvml:
        """Raises NvmlUnavailable where there is no nvidia-ml-py, no library or no driver."""
        try:
            import pynvml as api
        except ImportError:
            raise NvmlUnavailable("nvidia-ml-py is not installed; pip install 'tenure[server]' brings it") from None
        try:
            api.nvmlInit()
        except api.NVMLError_LibraryNotFound:
            raise NvmlUnavailable("no NVIDIA driver on this machine: libnvidia-ml.so.1 was not found") from None
        except api.NVMLError_DriverNotLoaded:
            raise NvmlUnavailable("the NVIDIA library is there, and its driver is not loaded") from None
        except api.NVMLError as error:
            raise NvmlUnavailable(f"NVML could not be opened: {error}") from error
        return cls(api)

    def close(self) -> None:
        """Give the reference back.  Idempotent; a failing shutdown is of no use to anyone and is dropped."""
        if self._open:
            self._open = False
            with contextlib.suppress(self._api.NVMLError):
                self._api.nvmlShutdown()

    def __enter__(self) -> Nvml:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- cards

    def driver(self) -> str:
        return self._maybe(lambda: str(self._api.nvmlSystemGetDriverVersion())) or ""

    def handles(self) -> Iterator[tuple[int, Handle | None, str]]:
        """Every index with its handle, or with None and the reason why it has none."""
        for index in range(self._api.nvmlDeviceGetCount()):
            try:
                yield index, self._api.nvmlDeviceGetHandleByIndex(index), ""
            except self._api.NVMLError as error:
                yield index, None, str(error)

    def handle(self, uuid: str) -> Handle:
        """The handle of a card by UUID.  Raises an NVML error where the card is gone."""
        return self._api.nvmlDeviceGetHandleByUUID(uuid.encode())

    def describe(self, index: int, handle: Handle) -> FoundCard:
        """What a card is.  Raises an NVML error for a card that does not answer."""
        memory, reserved, _ = self._memory(handle)
        pci = self._maybe(lambda: str(_text(self._api.nvmlDeviceGetPciInfo(handle).busId)))
        return FoundCard(
            uuid=str(self._api.nvmlDeviceGetUUID(handle)),
            index=index,
            name=str(self._api.nvmlDeviceGetName(handle)),
            memory=memory,
            reserved=reserved,
            driver=self.driver(),
            pci_bus_id=pci or "",
        )

    def in_mig_mode(self, handle: Handle) -> bool:
        """Is the card cut by MIG?  A card that knows no MIG is not."""
        mode = self._maybe(lambda: int(self._api.nvmlDeviceGetMigMode(handle)[0]))
        return mode == 1

    def read(self, card: CardId, handle: Handle, at: Instant) -> CardSample:
        """One look at a card.  What it does not support is None; what fails is None and named in `error`."""
        api, failed = self._api, list[str]()

        def reading(what: str, call: Callable[[], T]) -> T | None:
            try:
                return call()
            except (api.NVMLError_NotSupported, api.NVMLError_FunctionNotFound):
                return None
            except api.NVMLError as error:
                failed.append(f"{what}: {error}")
                return None

        memory = reading("memory", lambda: self._memory(handle))
        return CardSample(
            card=card,
            at=at,
            memory_total=memory[0] if memory else None,
            memory_used=memory[2] if memory else None,
            utilization=reading("utilization", lambda: int(api.nvmlDeviceGetUtilizationRates(handle).gpu)),
            temperature=reading(
                "temperature", lambda: int(api.nvmlDeviceGetTemperature(handle, api.NVML_TEMPERATURE_GPU))
            ),
            power=reading("power", lambda: api.nvmlDeviceGetPowerUsage(handle) / 1000),
            processes=reading("processes", lambda: self._processes(handle)),
            error=_joined(failed),
            lost=bool(failed) and memory is None,
        )

    def read_memory(self, card: CardId, handle: Handle, at: Instant) -> CardSample:
        """Who holds how much of it, and nothing else: two calls, for those who wait for the answer."""
        failed = list[str]()
        used = listed = None
        try:
            used = self._memory(handle)
            listed = self._processes(handle)
        except self._api.NVMLError as error:
            failed.append(f"{'processes' if used else 'memory'}: {error}")
        return CardSample(
            card=card,
            at=at,
            memory_total=used[0] if used else None,
            memory_used=used[2] if used else None,
            processes=listed,
            error=_joined(failed),
            lost=used is None,
        )

    # --- events

    def xid_set(self, handles: dict[CardId, Handle]) -> tuple[Handle, dict[int, CardId], str]:
        """An event set that hears Xids: the set, which card each device address is, and who cannot be heard."""
        api, heard, deaf = self._api, dict[int, CardId](), list[str]()
        events = api.nvmlEventSetCreate()
        for card, handle in handles.items():
            try:
                api.nvmlDeviceRegisterEvents(handle, api.nvmlEventTypeXidCriticalError, events)
                heard[_address(handle)] = card
            except api.NVMLError as error:
                deaf.append(f"{card}: {error}")
        return events, heard, _joined(deaf)

    def wait_xid(self, events: Handle, timeout_ms: int) -> tuple[int, int] | None:
        """The next Xid as (device address, code), or None after `timeout_ms`.  Raises an NVML error otherwise."""
        try:
            event = self._api.nvmlEventSetWait_v2(events, timeout_ms)
        except self._api.NVMLError_Timeout:
            return None
        return _address(event.device), int(event.eventData)

    def free_set(self, events: Handle) -> None:
        self._maybe(lambda: self._api.nvmlEventSetFree(events))

    # --- inside

    @property
    def errors(self) -> type[Exception]:
        """The root of NVML's errors."""
        root: type[Exception] = self._api.NVMLError
        return root

    def _maybe(self, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except self._api.NVMLError:
            return None

    def _memory(self, handle: Handle) -> tuple[int, int, int]:
        """(total, reserved, used).  The second form alone keeps the driver's own part out of `used`, as nvidia-smi does."""
        api = self._api
        try:
            info = api.nvmlDeviceGetMemoryInfo(handle, version=api.nvmlMemory_v2)
            return int(info.total), int(info.reserved), int(info.used)
        except (api.NVMLError_FunctionNotFound, api.NVMLError_ArgumentVersionMismatch, api.NVMLError_NotSupported):
            info = api.nvmlDeviceGetMemoryInfo(handle)
            return int(info.total), 0, int(info.used)

    def _processes(self, handle: Handle) -> tuple[GpuProcess, ...]:
        """Compute, MPS and graphics contexts, one entry a pid: a process may stand in more than one list."""
        api = self._api
        found: dict[int, int | None] = {}
        for optional, call in (
            (False, api.nvmlDeviceGetComputeRunningProcesses_v3),
            (True, api.nvmlDeviceGetMPSComputeRunningProcesses_v3),
            (True, api.nvmlDeviceGetGraphicsRunningProcesses_v3),
        ):
            entries = (self._maybe(lambda call=call: call(handle)) or ()) if optional else call(handle)  # type: ignore[misc]
            for entry in entries:
                pid, used = int(entry.pid), entry.usedGpuMemory
                found[pid] = max(found.get(pid) or 0, int(used)) if used is not None else found.get(pid)
        return tuple(GpuProcess(pid=pid, memory=memory) for pid, memory in sorted(found.items()))


def _address(handle: Handle) -> int:
    """The value of the opaque pointer: two handles of one card are different Python objects."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _joined(reasons: list[str]) -> str:
    """One sentence: a lost card fails every call with the same words, which are worth saying once."""
    words = {reason.partition(": ")[2] for reason in reasons}
    if len(reasons) > 1 and len(words) == 1:
        return words.pop()
    return "; ".join(reasons)
