"""Memory that a process holds and never uses: on the first card it may see, else in the machine's own.

`python -P -m tenure.testing.holding BYTES` is a worker that holds so much, ignores SIGTERM and outlives its server.  Standard
library only: the driver is called as it is, without a CUDA runtime.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
import sys
import time

__all__ = ["hold"]


def hold(size: int) -> str:
    """Take `size` bytes until the process ends; says where.  Raises MemoryError where a card has not so much left."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return _in_the_machine(size)
    if cuda.cuInit(0) != 0:  # a driver without a card
        return _in_the_machine(size)
    device, context, block = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    for code in (
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        cuda.cuCtxSetCurrent(context),
        cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size)),
    ):
        if code != 0:
            raise MemoryError(f"{size} bytes of card memory are not to be had: CUDA error {code}")
    return "card"


_kept: list[mmap.mmap] = []


def _in_the_machine(size: int) -> str:
    block = mmap.mmap(-1, size)
    for page in range(0, size, mmap.PAGESIZE):
        block[page] = 1  # only what was written to is really there
    _kept.append(block)
    return "machine"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    where = hold(int(sys.argv[1])) if int(sys.argv[1]) else "nowhere"
    print(f"worker holds {sys.argv[1]} bytes: {where}", flush=True)
    time.sleep(3600)
