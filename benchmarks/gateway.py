"""What the gateway adds: to a warm request, to a stream's chunks, to a cold start; and how much one process of it carries.

The model is a bare server of asyncio that answers at once, so that what is timed is the way to it.  Clients are threads of
this process with plain sockets, and the peers get the same bytes from the same client in turn.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .gateway_peers import passing
from .rig import Home, Plan, Row, cpu_seconds, median, percentile, smaps

BODY = b'{"model":"small","messages":[{"role":"user","content":"What is the capital of France?"}]}'
STREAM = b'{"model":"small","stream":true,"messages":[]}'
CHUNKS, CHUNK_S = 20, 0.05
UPSTREAM = Path(__file__).with_name("gateway_upstream.py")


def measure(plan: Plan) -> Iterator[Row]:
    with Home(plan) as home:
        yield _preempted(plan, home)
        (home.path / "policy" / "small.json").write_text(json.dumps(_document()))
        with home.wire() as wire:
            wire.call("POST", "/api/v1/policy:reload", {})
            gateway = int(json.loads((home.path / "daemon" / "address.json").read_text())["gateway_port"])
            pid = _gateway_pid(home, gateway)
            time.sleep(5)  # what a start leaves to do is no rest
            daemon_cpu, gateway_cpu, began = cpu_seconds(home.pid), cpu_seconds(pid), time.monotonic()
            time.sleep(plan.times(20))  # within the thirty seconds that a kept connection lasts
            idle = (cpu_seconds(home.pid) - daemon_cpu + cpu_seconds(pid) - gateway_cpu) / (time.monotonic() - began)
            yield Row(what="idle: gateway and daemon, of one core", unit="%", ours=idle * 100, reach=0.5)
            yield from _cold(plan, home, gateway)
            direct = next(m["port"] for m in wire.call("GET", "/api/v1/models") if m["name"] == "small")
            with passing(plan, direct) as (peers, absent):
                ways = {"ours": gateway, "direct": direct, **peers}
                yield from _latency(plan, ways, absent)
                yield from _rate(plan, ways, absent)
                yield from _streams(plan, ways, absent)
            yield Row(what="gateway: RSS", unit="MB", ours=smaps(pid)["rss"], reach=80)


def _preempted(plan: Plan, home: Home) -> Row:
    """A model whose server takes a second to leave, and a job of higher priority that needs all shares."""
    path, document = home.path / "policy" / "slow.json", _document("slow")
    server = [sys.executable, "-P", "-m", "tenure.testing.model_server", "--port", "{port}", "--leave-after", "1"]
    path.write_text(json.dumps(document | {"spec": document["spec"] | {"command": server, "stopTimeout": "10s"}}))
    took = []
    with home.wire() as wire, home.stream() as stream:
        wire.call("POST", "/api/v1/policy:reload", {})
        for _ in range(3 if plan.quick else 5):
            wire.call("POST", "/api/v1/models/slow:wake", {})
            while next(m["state"] for m in wire.call("GET", "/api/v1/models")) != "ready":
                time.sleep(0.02)
            stream.forget()
            body = {"argv": ["true"], "shares": 8, "gpu_memory": "12Gi", "priority": "training"}
            began = time.time_ns()
            job = wire.call("POST", "/api/v1/jobs", body)["id"]
            admitted = stream.wait(lambda e, job=job: e["kind"] == "JobAdmitted" and e["job_id"] == job)
            took.append((admitted - began) / 1e9)
            home.wait(wire, job)
        wire.call("POST", "/api/v1/models/slow:sleep", {})
        path.unlink()
        wire.call("POST", "/api/v1/policy:reload", {})
        while wire.call("GET", "/api/v1/models"):
            time.sleep(0.02)
    return Row(
        what="preemptor -> model's share is free, p50",
        unit="s",
        ours=median(took),
        reach=1.3,
        note=f"worst of {len(took)}: {max(took):.2f} s",
    )


def _document(name: str = "small") -> dict[str, Any]:
    command = [sys.executable, "-P", str(UPSTREAM), "{port}", str(CHUNKS), str(CHUNK_S)]
    spec: dict[str, Any] = {
        "command": command,
        "idleAfter": "1h",
        "queueName": "large-model",
        "priorityClassName": "on-demand",
    }
    spec |= {"shares": 1, "gpuMemory": "1Gi", "stopTimeout": "2s"}
    return {"apiVersion": "tenure.dev/v1", "kind": "Model", "metadata": {"name": name}, "spec": spec}


def _gateway_pid(home: Home, port: int) -> int:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        sock.recv(1000)
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"tenure.gateway.main" in words and parent == home.pid:
                return int(entry)
    raise RuntimeError("the gateway has no process")


def _cold(plan: Plan, home: Home, port: int) -> Iterator[Row]:
    """Through the gateway from asleep to the answer, less what the same server needs when a shell starts it."""
    cold, alone = [], []
    for _ in range(max(3, plan.times(10) // 2)):
        free = socket.create_server(("127.0.0.1", 0))
        number = free.getsockname()[1]
        free.close()
        began = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-P", str(UPSTREAM), str(number), "1", "0"])
        while True:
            try:
                with _Client(number) as client:
                    client.ask(BODY)
                break
            except OSError:
                time.sleep(0.002)
        alone.append((time.perf_counter() - began) * 1e3)
        process.terminate()
        process.wait()
        with home.wire() as wire:
            wire.call("POST", "/api/v1/models/small:sleep", {})
            while next(m["state"] for m in wire.call("GET", "/api/v1/models")) != "asleep":
                time.sleep(0.02)
        began = time.perf_counter()
        with _Client(port) as client:
            client.ask(BODY)
        cold.append((time.perf_counter() - began) * 1e3)
    note = f"cold {median(cold):.0f} ms; the server alone, started by hand, {median(alone):.0f} ms"
    yield Row(what="added to a cold start, p50", unit="ms", ours=median(cold) - median(alone), reach=150, note=note)


def _latency(plan: Plan, ways: dict[str, int], absent: dict[str, str]) -> Iterator[Row]:
    """In turn, fifty requests each, so that each is as warm as one client makes it.

    LiteLLM comes after the others, since it goes on working when it has answered.
    """
    seen: dict[str, list[float]] = {name: [] for name in ways}
    clients = {name: _Client(port) for name, port in ways.items()}
    for client in clients.values():
        for _ in range(20):  # what a peer does for the first request of all is not its latency
            client.ask(BODY)
    for names, times in ((clients.keys() - {"LiteLLM"}, 2000), (clients.keys() & {"LiteLLM"}, 400)):
        for _ in range(plan.times(times) // 50 or 1):
            for name in sorted(names):
                for _ in range(50):
                    began = time.perf_counter()
                    clients[name].ask(BODY)
                    seen[name].append((time.perf_counter() - began) * 1e3)
    for client in clients.values():
        client.close()
    for share, reach, label in ((0.5, 0.5, "p50"), (0.99, 5.0, "p99")):
        base = percentile(seen["direct"], share)
        added = {name: percentile(values, share) - base for name, values in seen.items() if name != "direct"}
        ours = added.pop("ours")
        peers: dict[str, float | str] = {**added, **absent}
        yield Row(what=f"added latency, warm, one connection, {label}", unit="ms", ours=ours, reach=reach, peers=peers)
        if share == 0.5:
            yield from _beside("added latency p50, nginx's = 1", _times(ours, added.get("nginx")), 4, absent)
            theirs = _times(added.get("LiteLLM"), ours)
            yield from _beside("LiteLLM's added latency p50, ours = 1", theirs, 10, absent, more=True)
            through = {name: percentile(values, share) for name, values in seen.items()}
            yield from _beside(
                "latency p50 through it, nginx's = 1", _times(through["ours"], through.get("nginx")), None, absent
            )


def _beside(
    what: str, ratio: float | None, reach: float | None, absent: dict[str, str], *, more: bool = False
) -> Iterator[Row]:
    """Where the peer is not here there is nothing to judge."""
    if ratio is not None:
        yield Row(what=what, unit="x", ours=ratio, reach=reach, more=more, peers=absent)


def _times(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _rate(plan: Plan, ways: dict[str, int], absent: dict[str, str]) -> Iterator[Row]:
    found: dict[str, float] = {}
    for name, port in ways.items():
        done = subprocess.run(
            [sys.executable, "-P", str(Path(__file__).with_name("gateway_load.py")), str(port), "32", str(plan.times(50) / 10)],
            input=BODY, capture_output=True, check=True,
        )  # fmt: skip
        found[name] = float(done.stdout)
    ours, direct = found.pop("ours"), found.pop("direct")
    note = f"directly {direct:.0f}/s; the load comes from one process, which shares the cores"
    peers: dict[str, float | str] = {**found, **absent}
    yield Row(what="requests/s, 32 connections", unit="/s", ours=ours, reach=2500, more=True, peers=peers, note=note)
    yield from _beside("aiohttp's requests/s, ours = 1", _times(found.get("aiohttp"), ours), 2, absent)


def _streams(plan: Plan, ways: dict[str, int], absent: dict[str, str]) -> Iterator[Row]:
    """Fifty streams at once; a chunk carries the time at which it was sent, on the clock that we read too."""
    late: dict[str, list[float]] = {}
    if "LiteLLM" in ways:
        absent = absent | {"LiteLLM": "it writes each chunk anew, without the time that it carried"}
    for name, port in ways.items():
        if name == "LiteLLM":
            continue
        delays: list[float] = []

        def one(port: int = port, delays: list[float] = delays) -> None:
            with _Client(port) as client:
                delays.extend(client.stream())

        threads = [threading.Thread(target=one) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        late[name] = delays
    base = median(late.pop("direct"))
    added = {name: median(values) - base for name, values in late.items()}
    ours = added.pop("ours")
    peers: dict[str, float | str] = {**added, **absent}
    yield Row(what="50 streams: added delay of a chunk, p50", unit="ms", ours=ours, reach=2, peers=peers)


class _Client:
    """HTTP/1.1 on one kept connection, as little of it as the figures need."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def __enter__(self) -> _Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._sock.close()

    def ask(self, body: bytes) -> bytes:
        self._send(body)
        head, size = self._head()
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(head.decode("latin-1"))
        while len(self._rest) < size:
            self._more()
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def stream(self) -> list[float]:
        """How late each chunk was, in ms."""
        self._send(STREAM)
        self._head()
        late = []
        while b"[DONE]" not in self._rest:
            while b"\n\n" in self._rest:
                event, self._rest = self._rest.split(b"\n\n", 1)
                if b'"sent":' in event:
                    sent = float(event.split(b'"sent":', 1)[1].split(b"}", 1)[0])
                    late.append((time.monotonic() - sent) * 1e3)
            if b"[DONE]" not in self._rest:
                self._more()
        return late

    def _send(self, body: bytes) -> None:
        self._sock.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )

    def _head(self) -> tuple[bytes, int]:
        while b"\r\n\r\n" not in self._rest:
            self._more()
        head, self._rest = self._rest.split(b"\r\n\r\n", 1)
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return head, int(line.partition(b":")[2])
        return head, 0

    def _more(self) -> None:
        data = self._sock.recv(65536)
        if not data:
            raise ConnectionError("closed")
        self._rest += data
