"""Memory of the daemon with 10,000 jobs in the ledger, all queued and all ended, each also after a fresh start.

MB are 10^6 bytes.  `private` is what would come back if the process ended; RSS counts shared libraries too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .rig import Home, Plan, Row, smaps

JOBS = 10_000
ARRAY = 1000


def measure(plan: Plan) -> Iterator[Row]:
    seen: dict[str, dict[str, float]] = {}
    starts: dict[str, float] = {}
    with Home(plan) as home:
        with home.wire() as wire, home.stream() as stream:
            seen["empty"] = smaps(home.pid)
            blocker = home.block(wire, stream)
            supervisor = smaps(supervisor_of(home, f"{blocker}.1"))
            arrays = [home.submit(wire, "true", array=f"1-{ARRAY}") for _ in range(JOBS // ARRAY)]
            wire.call("GET", "/api/v1/queues")
            seen["queued"] = smaps(home.pid)
        home.kill()
        starts["queued"] = home.up()
        with home.wire() as wire, home.stream() as stream:
            wire.call("GET", "/api/v1/queues")
            seen["queued, after a start"] = smaps(home.pid)
            for array in arrays:
                wire.call("POST", f"/api/v1/jobs/{array}:cancel", {})
            for array in arrays:
                home.wait(wire, array)
            seen["ended"] = smaps(home.pid)
        home.kill()
        starts["ended"] = home.up()
        with home.wire() as wire:
            wire.call("GET", "/api/v1/jobs?all=true")
            seen["ended, after a start"] = smaps(home.pid)
            wire.call("POST", f"/api/v1/jobs/{blocker}:cancel", {})
            home.wait(wire, blocker)
    for name, mb in seen.items():
        if name == "empty":
            yield Row(
                what="daemon, empty ledger: RSS", unit="MB", ours=mb["rss"], note=f"{mb['private']:.0f} MB private"
            )
        else:
            what = f"daemon, {JOBS} {name}: RSS"
            yield Row(what=what, unit="MB", ours=mb["rss"], reach=150, note=f"{mb['private']:.0f} MB private")
    yield Row(what="a supervisor: private", unit="MB", ours=supervisor["private"], reach=12)
    for name, took in starts.items():
        yield Row(what=f"`tenure up -d` after kill -9, {JOBS} {name}", unit="s", ours=took)


def supervisor_of(home: Home, run: str) -> int:
    """The pid that the attempt's own journal names."""
    import json

    first = (Path(home.path) / "runs" / run / "supervisor.jsonl").read_text().splitlines()[0]
    return int(json.loads(first)["pid"])
