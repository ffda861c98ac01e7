"""From a preemptor's submission to the `closed` line in its victim's record, where the victim leaves at once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime

from .rig import Home, Plan, Row, percentile


def measure(plan: Plan) -> Iterator[Row]:
    closed, began = [], []
    whole = {"shares": 8, "gpu_memory": "16Gi"}
    with Home(plan) as home, home.wire() as wire, home.stream() as stream:
        for i in range(plan.times(100) + 3):
            victim = home.submit(wire, "sleep", "100000", priority="batch", **whole)
            stream.wait(lambda e, v=victim: e["job_id"] == v and e["kind"] == "JobStarted")
            begun = time.time_ns()
            preemptor = home.submit(wire, "date", "+%s%N", priority="training", **whole)
            home.wait(wire, preemptor)
            # what was evicted comes back by itself; it is cancelled, wherever it is by now
            wire.call("POST", f"/api/v1/jobs/{victim}:cancel", {})
            home.wait(wire, victim)
            stream.forget()
            if i >= 3:
                closed.append((closing(home, f"{victim}.1") - begun) / 1e6)
                began.append((int(home.output(f"{preemptor}.1")) - begun) / 1e6)
    yield Row(what="preemptor -> victim's record closed, p50", unit="ms", ours=percentile(closed, 0.5), reach=30)
    yield Row(what="preemptor -> victim's record closed, p99", unit="ms", ours=percentile(closed, 0.99), reach=100)
    yield Row(what="preemptor -> its first instruction, p50", unit="ms", ours=percentile(began, 0.5))


def closing(home: Home, run: str) -> int:
    """When the record says that it was closed, in ns.  An eviction must have closed it as interrupted."""
    lines = (home.path / "runs" / run / "record.jsonl").read_text().splitlines()
    line = next(x for x in map(json.loads, lines) if x["kind"] == "closed")
    if line["outcome"] != "interrupted":
        raise RuntimeError(f"run {run} is {line['outcome']}, not interrupted")
    return int(datetime.fromisoformat(line["at"]).timestamp() * 1_000_000) * 1000
