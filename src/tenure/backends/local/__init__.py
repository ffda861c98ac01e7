"""The local backend: real processes on this machine, each attempt under a supervisor that outlives the daemon.

`LocalBackend` (in the daemon) asks a small forkserver for a supervisor per attempt.  The supervisor alone knows how its
attempt goes and writes it down in the run directory; the daemon listens, and reads the files where it heard nothing.

The supervisor and the forkserver import from this package too, and stay small: nothing is imported here until asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .backend import LocalBackend as LocalBackend

__all__ = ["LocalBackend"]


def __getattr__(name: str) -> object:
    if name == "LocalBackend":
        from .backend import LocalBackend

        return LocalBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
