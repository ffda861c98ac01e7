"""THE PEN: `study`, `Run` and the record format.  Standard library only; works with no platform running.

Importing this package imports nothing: supervisors want `tenure.sdk.record` alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.sdk.checkpoints import Checkpoint
    from tenure.sdk.program import Study, study
    from tenure.sdk.run import Run, current_run
    from tenure.sdk.stopping import Interrupted

__all__ = ["Checkpoint", "Interrupted", "Run", "Study", "current_run", "study"]

_HOMES = {
    "Checkpoint": "checkpoints", "Interrupted": "stopping", "Run": "run", "Study": "program", "current_run": "run",
    "study": "program",
}  # fmt: skip


def __getattr__(name: str) -> object:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"tenure.sdk.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
