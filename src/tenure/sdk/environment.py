"""Where did it run?  The machine down to driver and card; for Python runs the interpreter and its packages too.

`machine()` is for supervisors: no process is started, no library loaded, and after the first call it costs nothing.
`environment()` is for runs.  Neither raises; what cannot be read is left out.  Nothing secret is kept: of the process's
environment only variables named here.
"""

from __future__ import annotations

import os
import sys

__all__ = ["environment", "machine", "nvml", "packages", "variables"]

CARD_VARIABLE = "TENURE_CARD"  # set by the platform: `measured`, `declared` or `none`

_VARIABLES = frozenset({
    "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "LANG", "LC_ALL",
    "LD_LIBRARY_PATH", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "PYTHONHASHSEED", "PYTHONPATH", "RANK",
    "SLURM_JOB_ID", "SLURM_PROCID", "TENURE_CARD", "TF_DETERMINISTIC_OPS", "TZ", "VIRTUAL_ENV", "CONDA_DEFAULT_ENV",
    "WORLD_SIZE", "XLA_FLAGS",
})  # fmt: skip
_PREFIXES = ("OMP_", "MKL_", "OPENBLAS_", "NCCL_", "PYTORCH_", "TORCH_", "NVIDIA_")
_SECRET = ("TOKEN", "KEY", "SECRET", "PASS", "CREDENTIAL")
_NVIDIA = "/proc/driver/nvidia"

_machine: dict[str, object] | None = None
_packages: tuple[tuple[str, ...], dict[str, str]] | None = None


def machine() -> dict[str, object]:
    """`os`, `kernel`, `arch`, `cpu`, `cpus`, `memory_bytes`, `driver`, `cards` and how the platform calls the `card`.

    Read once a process; each call returns a copy.
    """
    global _machine  # noqa: PLW0603  (a process runs on one machine)
    if _machine is None:
        _machine = _read_machine()
    card = os.environ.get(CARD_VARIABLE)
    if card is None:
        card = "measured" if _machine.get("cards") else "none"
    return {**_machine, "card": card}


def environment(*, with_nvml: bool = True) -> dict[str, object]:
    """`machine()`, and the Python that runs this: interpreter, packages with versions, variables that change results.

    `with_nvml` asks NVIDIA's library for memory and driver where a driver is loaded (tens of milliseconds then).
    """
    import platform

    value: dict[str, object] = {**machine(), "python": {
        "version": platform.python_version(), "implementation": platform.python_implementation(),
        "executable": sys.executable, "prefix": sys.prefix,
    }, "packages": packages(), "variables": variables()}  # fmt: skip
    if with_nvml and value.get("driver"):
        value.update(nvml())
    return value


def packages() -> dict[str, str]:
    """Names and versions of the distributions on this process's path, read off their metadata folders' names.

    The names are as the folders spell them.  Cached until `sys.path` changes.
    """
    global _packages  # noqa: PLW0603  (a cache of what the path holds)
    path = tuple(sys.path)
    if _packages is None or _packages[0] != path:
        found: dict[str, str] = {}
        for folder in path:
            for name, version in _distributions(folder or "."):
                found.setdefault(name, version)  # the first on the path is the one that is imported
        _packages = (path, dict(sorted(found.items(), key=lambda item: item[0].lower())))
    return dict(_packages[1])


def variables() -> dict[str, str]:
    """Environment variables that change what a run computes or where; never one that looks like a secret."""
    return {
        name: text[:4096]
        for name, text in sorted(os.environ.items())
        if (name in _VARIABLES or name.startswith(_PREFIXES)) and not any(word in name for word in _SECRET)
    }


def nvml() -> dict[str, object]:
    """Driver and cards as NVIDIA's management library tells them; empty where there is none."""
    import ctypes

    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2() != 0:
            return {}
    except (OSError, AttributeError):
        return {}
    try:
        text = ctypes.create_string_buffer(96)
        value: dict[str, object] = {}
        if library.nvmlSystemGetDriverVersion(text, 96) == 0:
            value["driver"] = text.value.decode("utf-8", "replace")
        count, cards = ctypes.c_uint(), []
        library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for index in range(count.value):
            handle, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
            if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
                continue
            card: dict[str, object] = {}
            for field, ask in (("model", library.nvmlDeviceGetName), ("uuid", library.nvmlDeviceGetUUID)):
                if ask(handle, text, 96) == 0:
                    card[field] = text.value.decode("utf-8", "replace")
            if library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0:
                card["memory_bytes"] = int(memory[0])
            cards.append(card)
        if cards:
            value["cards"] = cards
        return value
    except AttributeError:
        return {}
    finally:
        library.nvmlShutdown()


def _read_machine() -> dict[str, object]:
    name = os.uname()
    value: dict[str, object] = {
        "host": name.nodename, "os": _os_name() or name.sysname, "kernel": name.release, "arch": name.machine,
        "cpu": _field("/proc/cpuinfo", "model name"), "cpus": _cpus(), "memory_bytes": _memory(),
    }  # fmt: skip
    driver = _head(f"{_NVIDIA}/version")
    if driver:
        words = driver.split("\n", 1)[0].split()
        value["driver"] = next((w for w in words if w[0].isdigit() and w.count(".") >= 1), "")
    value["cards"] = _cards()
    return {key: item for key, item in value.items() if item not in (None, "")}


def _cards() -> list[dict[str, object]]:
    cards: list[dict[str, object]] = []
    try:
        folders = sorted(os.listdir(f"{_NVIDIA}/gpus"))
    except OSError:
        return cards
    for folder in folders:
        path = f"{_NVIDIA}/gpus/{folder}/information"
        card = {"model": _field(path, "Model"), "uuid": _field(path, "GPU UUID"), "bus": folder}
        cards.append({key: item for key, item in card.items() if item})
    return cards


def _head(path: str, size: int = 8192) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(size).decode("utf-8", "replace")
    except OSError:
        return ""


def _field(path: str, name: str) -> str:
    for line in _head(path).splitlines():
        key, separator, text = line.partition(":")
        if separator and key.strip() == name:
            return text.strip()
    return ""


def _os_name() -> str:
    for line in _head("/etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip("\"'")
    return ""


def _cpus() -> int:
    """How many this process may use, which is what a result depends on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> int | None:
    text = _field("/proc/meminfo", "MemTotal").split()
    return int(text[0]) * 1024 if text and text[0].isdigit() else None


def _distributions(folder: str) -> list[tuple[str, str]]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found: list[tuple[str, str]] = []
    for entry in names:
        if entry.endswith(".dist-info"):
            name, _, version = entry.removesuffix(".dist-info").rpartition("-")
            if name:
                found.append((name, version))
        elif entry.endswith(".egg-info"):
            path = os.path.join(folder, entry)
            info = f"{path}/PKG-INFO" if os.path.isdir(path) else path
            name = _field(info, "Name") or entry.removesuffix(".egg-info")
            found.append((name.replace("-", "_"), _field(info, "Version")))
    return found
