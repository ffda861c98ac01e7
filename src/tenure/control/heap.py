"""What glibc's malloc is asked for by processes that stay for weeks."""

from __future__ import annotations

import ctypes
from contextlib import suppress

__all__ = ["give_back"]

M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8  # of malloc.h
LARGE = 1024 * 1024
ARENAS = 2


def give_back() -> None:
    """Memory that is freed goes back to the system; before the first thread.  Where there is no glibc nothing happens.

    Large blocks are mapped each by itself: glibc learns from the first few to keep them otherwise.  Threads share two
    heaps, where each would have one of its own that keeps the most it ever held: they take turns for the GIL as it is.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE)
        libc.mallopt(M_ARENA_MAX, ARENAS)
