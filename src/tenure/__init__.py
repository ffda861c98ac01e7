"""tenure: one front door for every GPU job.

Experiments import this package and nothing below it: `tenure.study`, `tenure.Run`.  Everything else is for the platform.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not from `typing`: that import alone costs more than a record's writer may
if TYPE_CHECKING:
    from tenure.sdk import Checkpoint, Interrupted, Run, current_run, study

__version__ = "0.1.0"
__all__ = ["Checkpoint", "Interrupted", "Run", "__version__", "current_run", "study"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from tenure import sdk

        return getattr(sdk, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
