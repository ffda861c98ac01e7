"""From the exit of a job's process to its final state in the API's answers, by long poll and by Server-Sent Events.

The process prints the time as the last thing that it does (`exec date`, after both listeners are in place), so what is
measured is a little more than from its exit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from .rig import Home, Plan, Row, percentile


def measure(plan: Plan) -> Iterator[Row]:
    polled, streamed = [], []
    with Home(plan) as home, home.wire() as wire, home.stream() as stream:
        for i in range(plan.times(200) + 5):
            job = home.submit(wire, "sh", "-c", "sleep 0.1; exec date +%s%N")
            home.wait(wire, job)
            answered = time.time_ns()
            heard = stream.wait(lambda e, job=job: e["job_id"] == job and e["kind"] == "JobEnded")
            stream.forget()
            ended = int(home.output(f"{job}.1"))
            if i >= 5:
                polled.append((answered - ended) / 1e6)
                streamed.append((heard - ended) / 1e6)
    for name, values in (("REST", polled), ("SSE", streamed)):
        yield Row(what=f"exit -> final state by {name}, p50", unit="ms", ours=percentile(values, 0.5))
        yield Row(what=f"exit -> final state by {name}, p99", unit="ms", ours=percentile(values, 0.99), reach=50)
