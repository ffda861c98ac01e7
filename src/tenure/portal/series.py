"""A run's metrics as series for a chart: read from its own `metrics.jsonl`, in bounded memory, thinned evenly."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["read_series"]

POINTS = 1000
NAMES = 24
LINE = 1 << 20
_OURS = frozenset({"v", "at", "kind", "seq", "step"})


class _Thinned:
    """At most twice `POINTS` points, every n-th of what came; n doubles when it is full."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float | None]] = []
        self.every, self.seen = 1, 0

    def add(self, x: float, y: float | None) -> None:
        if self.seen % self.every == 0:
            self.points.append((x, y))
            if len(self.points) >= 2 * POINTS:
                self.points, self.every = self.points[::2], self.every * 2
        self.seen += 1


def read_series(path: Path) -> dict[str, dict[str, list[Any]]]:
    """`{name: {"x": steps, "y": values}}`.  Torn and foreign lines are passed over, as every reader of a record does."""
    found: dict[str, _Thinned] = {}
    count = 0
    if not path.exists():
        return {}
    with path.open("rb") as file:
        while raw := file.readline(LINE):
            try:
                line = json.loads(raw)
            except ValueError:
                continue
            if not isinstance(line, Mapping):
                continue
            step = line.get("step")
            x = float(step) if isinstance(step, int | float) else float(count)
            count += 1
            for name, value in line.items():
                number = isinstance(value, int | float) and not isinstance(value, bool) and name not in _OURS
                if number and (name in found or len(found) < NAMES):
                    found.setdefault(name, _Thinned()).add(x, float(value) if math.isfinite(value) else None)
    return {name: {"x": [x for x, _ in s.points], "y": [y for _, y in s.points]} for name, s in found.items()}
