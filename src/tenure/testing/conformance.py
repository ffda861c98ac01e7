"""Replays scenarios whose decisions the real Kueue took, and compares every decision, message and queue place.

`python -m tenure.testing.conformance FILE.jsonl.gz ...` prints the first differences and, last, `agree N of M`.
A line of a file is `{"input": scenario, "expected": [state after each cycle]}`; objects are Kueue's v1beta2 as JSON.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.workload import Admission, Workload
from tenure.engine import Engine, EngineOptions
from tenure.engine.spelling import spell

from .kueue_json import Json, read_policy, read_workload

__all__ = ["Replay", "differences", "read_corpus", "replay"]

_START = Instant(round(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000)
_SECOND = 1_000_000


@dataclass(slots=True)
class _Seen:
    """One workload as an API server would show it."""

    workload: Workload
    state: str = "pending"
    reason: str | None = None
    message: str | None = None
    preempted: str | None = None
    eviction: str = ""
    admission: Admission | None = None


class Replay:
    """A scenario under way: the engine, a clock, and what its users would see."""

    def __init__(self, scenario: Json) -> None:
        self.engine = Engine(read_policy(scenario), options=EngineOptions(shrink_gangs=False))
        self.now = _START
        self.seen: dict[WorkloadKey, _Seen] = {}
        for raw in scenario.get("workloads") or ():
            self.create(raw)

    def create(self, raw: Json) -> None:
        w = read_workload(raw)
        self.seen[w.key] = _Seen(w)
        self.engine.add(w)

    def step(self, step: Json) -> dict[str, Any] | None:
        """Take one step; a cycle answers with the state after it."""
        match step["op"]:
            case "cycle":
                return self.cycle()
            case "create":
                self.create(step["workload"])
            case "evictions":
                self.complete_evictions()
            case "finish":
                self.finish(WorkloadKey(step["key"]))
            case "finishNth":
                running = sorted(key for key, s in self.seen.items() if s.state == "admitted")
                if running:
                    self.finish(running[step.get("seconds", 0) % len(running)])
            case "advance":
                self.now = Instant(self.now + round(step["seconds"] * _SECOND))
            case other:
                raise ValueError(f"unknown step {other!r}; known: cycle, create, evictions, finish, finishNth, advance")
        return None

    def cycle(self) -> dict[str, Any]:
        self.now = Instant(self.now + _SECOND)
        plan = self.engine.cycle(self.now)
        for admit in plan.admits:
            s = self.seen[admit.key]
            s.state, s.admission, s.preempted, s.reason, s.message = "admitted", admit.admission, None, None, None
        for preempt in plan.preempts:
            s = self.seen[preempt.victim]
            s.state, s.preempted, s.eviction = "evicting", str(preempt.reason), preempt.message
        for pend in plan.pends:
            s = self.seen[pend.key]
            s.reason, s.message = str(pend.reason), pend.message
        return self.state([str(key) for key in plan.order])

    def complete_evictions(self) -> None:
        for key in sorted(key for key, s in self.seen.items() if s.state == "evicting"):
            s = self.seen[key]
            s.state, s.admission, s.reason, s.message = "pending", None, "Pending", s.eviction
            self.engine.released(key, at=self.now)

    def finish(self, key: WorkloadKey) -> None:
        self.seen[key].state = "finished"
        self.engine.remove(key)

    def state(self, order: list[str]) -> dict[str, Any]:
        places = self.engine.places()
        workloads = []
        for key in sorted(self.seen):
            s = self.seen[key]
            shown: dict[str, Any] = {"key": str(key), "state": s.state}
            if s.state == "pending":
                shown["queue"] = "active" if places.get(key) else "inadmissible"
                if s.reason is not None:
                    shown["reason"], shown["message"] = s.reason, s.message
            if s.preempted is not None:
                shown["preemptedReason"] = s.preempted
            if s.admission is not None:
                shown["admission"] = _admission(s.admission)
            workloads.append(shown)
        return {"order": order or None, "workloads": workloads or None}  # the corpus writes empty lists as null


def _admission(a: Admission) -> dict[str, Any]:
    return {
        "clusterQueue": a.cluster_queue,
        "podSetAssignments": [
            {
                "name": ps.name,
                "flavors": dict(sorted(ps.flavors.items())),
                "resourceUsage": {r: spell(r, n) for r, n in sorted(ps.usage.items())},
                "count": ps.count,
            }
            for ps in a.assignments
        ],
    }


def replay(scenario: Json) -> list[dict[str, Any]]:
    """The state after each cycle, in the corpus's own shape."""
    run = Replay(scenario)
    return [state for step in scenario["steps"] if (state := run.step(step)) is not None]


# -- comparing --------------------------------------------------------------------------------------------------


def differences(expected: Sequence[Json], actual: Sequence[Json]) -> Iterator[str]:
    """Each way in which the states differ, the earliest cycle first."""
    if len(expected) != len(actual):
        yield f"{len(expected)} cycles expected, {len(actual)} replayed"
    for n, (want, got) in enumerate(zip(expected, actual, strict=False)):
        if list(want.get("order") or ()) != list(got.get("order") or ()):
            yield f"cycle {n}: order {want.get('order')} expected, {got.get('order')} replayed"
        wanted = {w["key"]: w for w in want.get("workloads") or ()}
        shown = {w["key"]: w for w in got.get("workloads") or ()}
        for key in sorted(wanted.keys() | shown.keys()):
            yield from _workload_differences(f"cycle {n}: {key}", wanted.get(key), shown.get(key))


def _workload_differences(where: str, want: Json | None, got: Json | None) -> Iterator[str]:
    if want is None or got is None:
        yield f"{where}: {'not expected' if want is None else 'missing'}"
        return
    skipped = {"messageUnstable", "message"} if want.get("messageUnstable") else set()
    for field in sorted((want.keys() | got.keys()) - skipped):
        if want.get(field) != got.get(field):
            yield f"{where}: {field} {want.get(field)!r} expected, {got.get(field)!r} replayed"


def read_corpus(path: str) -> Iterator[Json]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def main(paths: Iterable[str]) -> int:
    agreed = total = shown = 0
    for path in paths:
        for case in read_corpus(path):
            total += 1
            found = list(differences(case["expected"], replay(case["input"])))
            agreed += not found
            if found and shown < 20:
                shown += 1
                print(f"{path}: {case['input'].get('name')}: {found[0]}", *found[1:4], sep="\n    ")
    print(f"agree {agreed} of {total}")
    return 0 if agreed == total else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
