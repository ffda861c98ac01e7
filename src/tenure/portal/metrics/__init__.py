"""What Prometheus is told: counters that follow the diary, gauges that look when they are asked."""

from __future__ import annotations

from .exposition import Metrics
from .families import FAMILIES, Family

__all__ = ["FAMILIES", "Family", "Metrics"]
