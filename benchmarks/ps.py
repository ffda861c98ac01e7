"""`tenure ps` as a whole process, with 1,000 jobs in the ledger: all queued (so all listed), then all ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

from .rig import Home, Plan, Row, cpu_seconds, median, tenure

JOBS = 1000


def measure(plan: Plan) -> Iterator[Row]:
    with Home(plan) as home, home.wire() as wire, home.stream() as stream:
        blocker = home.block(wire, stream)
        array = home.submit(wire, "true", array=f"1-{JOBS}")
        listed = len(home.cli("ps").splitlines())
        before = cpu_seconds(home.pid)
        queued = timed(plan, home, "ps")
        spent = (cpu_seconds(home.pid) - before) / len(queued)
        helped = timed(plan, home, "--help")
        wire.call("POST", f"/api/v1/jobs/{array}:cancel", {})
        home.wait(wire, array)
        ended = timed(plan, home, "ps")
        everything = timed(plan, home, "ps", "-a")
        wire.call("POST", f"/api/v1/jobs/{blocker}:cancel", {})
    note = f"{listed} lines; of this {spent * 1000:.0f} ms CPU in the daemon"
    yield Row(what=f"tenure ps, {JOBS} queued", unit="ms", ours=median(queued), reach=200, note=note)
    yield Row(what=f"tenure ps, {JOBS} ended", unit="ms", ours=median(ended), reach=200)
    yield Row(what=f"tenure ps -a, {JOBS} ended", unit="ms", ours=median(everything))
    yield Row(what="tenure --help", unit="ms", ours=median(helped))


def timed(plan: Plan, home: Home, *args: str) -> list[float]:
    took = []
    for _ in range(plan.times(20)):
        begun = time.perf_counter()
        subprocess.run([tenure(), *args], env=home.env, cwd=home.work, check=True, capture_output=True)
        took.append((time.perf_counter() - begun) * 1000)
    return took
