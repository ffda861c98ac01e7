"""Kueue's own performance generator: the decisions of the real scheduler, by number, and within the time promised."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from time import process_time
from typing import Any


def _benchmark() -> Any:
    path = Path(__file__).parents[2] / "benchmarks" / "engine_baseline.py"
    spec = importlib.util.spec_from_file_location("engine_baseline", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["engine_baseline"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_cohort_takes_the_decisions_of_the_real_scheduler() -> None:
    began = process_time()
    done = _benchmark().run("one-cohort")
    assert (done["admissions"], done["evictions"], done["cycles"]) == (4215, 1215, 1035)
    assert done["makespan_ms"] == 76_905
    assert process_time() - began < 15  # measured: 0.4 s
