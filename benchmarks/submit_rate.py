"""Sixteen clients submit at once over REST, each a process with one kept connection; none may be lost.

All shares are held, so that what is timed is submission: what comes in is queued and looked at by the scheduler.  The
daemon is killed with -9 right after the last answer, and every id that was answered must be there after the next start.
(A killed process shows that answers come after commits; that a commit is on the disk by then is the ledger's promise of
`durable`, one fdatasync for all who commit together.)
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from .rig import Home, Plan, Row, Wire, cpu_seconds, percentile

CLIENTS = 16
EACH = 100


def measure(plan: Plan) -> Iterator[Row]:
    rates, latencies, lost, cpu = [], [], 0, 0.0
    rounds = 1 if plan.quick else 3
    for _ in range(rounds):
        with Home(plan) as home:
            with home.wire() as wire, home.stream() as stream:
                home.block(wire, stream)
            before = cpu_seconds(home.pid)
            ids, begun, ended, waits = together(home)
            cpu += cpu_seconds(home.pid) - before
            home.kill()
            rates.append(len(ids) / (ended - begun))
            latencies += waits
            home.up()
            lost += missing(home, ids)
            with home.wire() as wire:
                for job in wire.call("GET", "/api/v1/jobs?state=running")["items"]:
                    wire.call("POST", f"/api/v1/jobs/{job['id']}:cancel", {})
    rates.sort()
    spent = cpu / (rounds * CLIENTS * EACH) * 1000
    yield Row(
        what=f"REST submits by {CLIENTS} clients",
        unit="jobs/s",
        ours=rates[len(rates) // 2],
        reach=400,
        more=True,
        note=f"an answer took p50 {percentile(latencies, 0.5):.0f} ms, p99 {percentile(latencies, 0.99):.0f} ms",
    )
    yield Row(what="answered submits lost to kill -9", unit="jobs", ours=float(lost), reach=0)
    yield Row(what="CPU of the daemon a submit", unit="ms", ours=spent)


def together(home: Home) -> tuple[list[str], float, float, list[float]]:
    """Ids, first send, last answer, and each answer's wait in ms."""
    body = home.job("true")
    socket = str(home.path / "daemon" / "api.sock")
    clients = [
        subprocess.Popen(
            [sys.executable, "-m", __name__, socket, json.dumps(body)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(CLIENTS)
    ]
    for client in clients:
        assert client.stdout is not None
        client.stdout.readline()
    for client in clients:
        assert client.stdin is not None
        client.stdin.write("go\n")
        client.stdin.flush()
    answers = [json.loads(client.communicate()[0]) for client in clients]
    ids = [i for a in answers for i in a["ids"]]
    if len(set(ids)) != CLIENTS * EACH:
        raise RuntimeError(f"{len(set(ids))} different ids for {CLIENTS * EACH} submits")
    waits = [w for a in answers for w in a["waits"]]
    return ids, min(a["begun"] for a in answers), max(a["ended"] for a in answers), waits


def missing(home: Home, ids: list[str]) -> int:
    found: set[str] = set()
    cursor = ""
    with home.wire() as wire:
        while True:
            page = wire.call("GET", "/api/v1/jobs?all=true&limit=1000" + (f"&cursor={cursor}" if cursor else ""))
            found |= {job["id"] for job in page["items"]}
            cursor = page["next"]
            if not cursor:
                return len(set(ids) - found)


def client(socket: str, body: str) -> None:
    request = Wire.request("POST", "/api/v1/jobs", json.loads(body))
    wire = Wire(Path(socket))
    print("ready", flush=True)
    sys.stdin.readline()
    ids, waits = [], []
    begun = time.monotonic()
    for _ in range(EACH):
        sent = time.monotonic()
        wire.send(request)
        status, job = wire.answer()
        waits.append((time.monotonic() - sent) * 1000)
        if status != 201:
            raise RuntimeError(f"{status} {job}")
        ids.append(job["id"])
    print(json.dumps({"ids": ids, "begun": begun, "ended": time.monotonic(), "waits": waits}))


if __name__ == "__main__":
    client(*sys.argv[1:])
