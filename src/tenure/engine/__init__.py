"""The mind: decides as Kueue decides who may run, in which order, on which flavor and card, and who must go for it.

Pure: no clock, no I/O, no randomness; `now` is always an argument.
"""

from .engine import Engine, EngineOptions, Reservation

__all__ = ["Engine", "EngineOptions", "Reservation"]
