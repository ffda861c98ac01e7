"""Thousands of random steps on a crowded engine: everything adds up after each, also over restarts."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from tenure.domain.ids import Instant, WorkloadKey
from tenure.domain.workload import Workload
from tenure.engine import Engine
from tenure.testing.engine_audit import audit
from tenure.testing.lab import cards, policy, workload

_OWNS = {"gpu": 5, "memory": "40Gi"}
_TAKING = {"within": "LowerOrNewerEqualPriority", "reclaim": "Any", "while_borrowing": "LowerPriority"}
_POLICIES: dict[str, dict[str, Any]] = {
    "flat": {
        "queues": {
            "a": {"cohort": "all", "owns": _OWNS, **_TAKING},
            "b": {"cohort": "all", "owns": _OWNS, "within": "LowerPriority", "reclaim": "LowerPriority"},
            "c": {"cohort": "all", "owns": {"gpu": 0, "memory": 0}, "borrows": {"gpu": 3}},
        }
    },
    "tree": {
        "queues": {
            "a": {"cohort": "left", "owns": _OWNS, "lends": {"gpu": 2}, **_TAKING},
            "b": {"cohort": "right", "owns": _OWNS, "strategy": "StrictFIFO", **_TAKING},
            "c": {"cohort": "right", "owns": _OWNS, "borrows": {"gpu": 4}, "reclaim": "LowerPriority"},
        },
        "cohorts": {
            "left": {"parent": "root", "owns": {"gpu": 1, "memory": 0}, "borrows": {"gpu": 4}},
            "right": {"parent": "root"},
            "root": {"owns": {"gpu": 2, "memory": "20Gi"}},
        },
    },
    "fair": {
        "fair_sharing": True,
        "queues": {
            "a": {"cohort": "all", "owns": _OWNS, "weight": 2, **_TAKING},
            "b": {"cohort": "all", "owns": _OWNS, "reclaim": "Any", "within": "LowerPriority"},
            "c": {"cohort": "side", "owns": {"gpu": 2, "memory": "20Gi"}, "weight": 0.5, "reclaim": "Any"},
        },
        "cohorts": {"side": {"parent": "all"}, "all": {}},
    },
    "cut": {"queues": {name: {"cohort": "all", "owns": {"gpu": 2, "memory": "20Gi"}, **_TAKING} for name in "ab"}},
}

for _policy in _POLICIES.values():
    _policy["priorities"] = {"p1": 1, "p2": 2, "p3": 3}


class Life:
    def __init__(self, kind: str, seed: int) -> None:
        self.random = Random(seed)
        self.kind = kind
        self.cards = cards([{"id": f"gpu-{k}", "shares": 6, "memory": "50Gi"} for k in range(2 if seed % 2 else 0)])
        self.engine = Engine(policy(_POLICIES[kind]), self.cards)
        self.now = Instant(0)
        self.known: dict[WorkloadKey, Workload] = {}
        self.held: set[WorkloadKey] = set()
        self.leaving: set[WorkloadKey] = set()
        self.shrinking: dict[WorkloadKey, int] = {}
        self.seen: Counter[str] = Counter()

    def step(self) -> None:
        self.now = Instant(self.now + 1)
        act = self.random.choices(
            [self.submit, self.end, self.leave, self.shrunk, self.cycle, self.evict, self.change, self.policy, self.restart],
            [20, 9, 12, 6, 40, 1, 2, 0.3, 0.5],
        )[0]  # fmt: skip
        act()

    def submit(self) -> None:
        if len(self.known) > 40:
            return
        count = self.random.choice([1, 1, 1, 2, 4])
        raw: dict[str, Any] = {
            "job": f"w{self.now:05}", "queue": self.random.choice("aabbc"), "priority": self.random.choice([0, 0, 1, 2]),
            "gpu": self.random.choice([1, 1, 2, 3]), "memory": f"{self.random.choice([2, 5, 10])}Gi", "count": count,
        }  # fmt: skip
        if count > 1 and self.random.random() < 0.6:
            raw["min"] = self.random.randint(1, count)
        if self.random.random() < 0.05:
            raw["whole_card"] = True
        w = workload(raw, at=self.now, priorities={})
        self.known[w.key] = w
        self.engine.add(w)

    def _any(self, keys: object) -> WorkloadKey | None:
        ordered = sorted(keys)  # type: ignore[call-overload]
        return self.random.choice(ordered) if ordered else None

    def end(self) -> None:
        key = self._any(self.held if self.random.random() < 0.8 else self.known)
        if key is not None:
            self.engine.remove(key)
            self.known.pop(key)
            self.held.discard(key)
            self.leaving.discard(key)
            self.shrinking.pop(key, None)

    def leave(self) -> None:
        key = self._any(self.leaving)
        if key is not None:
            self.leaving.discard(key)
            self.held.discard(key)
            self.shrinking.pop(key, None)
            until = Instant(self.now + 20) if self.random.random() < 0.1 else None
            self.engine.released(key, at=self.now, requeue_at=until)

    def shrunk(self) -> None:
        key = self._any(self.shrinking)
        if key is not None:
            self.engine.resized(key, "main", self.shrinking.pop(key))

    def evict(self) -> None:
        key = self._any(self.held - self.leaving)
        if key is not None:
            self.leaving.add(key)
            self.engine.evict(key)

    def change(self) -> None:
        from dataclasses import replace

        key = self._any(self.known)
        if key is not None:
            self.known[key] = replace(self.known[key], priority=self.random.choice([0, 1, 2]))
            self.engine.update(self.known[key])

    def policy(self) -> None:
        self.engine.replace_policy(policy(_POLICIES[self.random.choice([self.kind, self.kind, *_POLICIES])]))

    def restart(self) -> None:
        held = self.engine.reservations()
        self.engine = Engine(self.engine.policy, self.cards, self.engine.options)
        for r in held:
            self.engine.restore(r.workload, r.admission, reserved_at=r.reserved_at, evicting=r.evicting)
        for key in sorted(self.known.keys() - {r.workload.key for r in held}):
            self.engine.add(self.known[key])
        self.shrinking.clear()

    def cycle(self) -> None:
        plan = self.engine.cycle(self.now)
        for a in plan.admits:
            assert a.key not in self.held
            self.held.add(a.key)
        for p in plan.preempts:
            assert p.victim in self.held - self.leaving
            self.leaving.add(p.victim)
            self.seen[str(p.reason)] += 1
        for s in plan.shrinks:
            assert s.victim in self.held - self.leaving
            assert s.count >= (self.known[s.victim].pod_sets[0].min_count or 99)
            self.shrinking[s.victim] = s.count
        for e in plan.evicts:
            self.leaving.add(e.key)
        self.seen.update(admits=len(plan.admits), shrinks=len(plan.shrinks))
        self.seen.update(str(p.reason) for p in plan.pends)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["flat", "tree", "fair"])
def test_everything_adds_up_for_thousands_of_steps(kind: str, seed: int) -> None:
    life = Life(kind, seed)
    for _ in range(2000):
        life.step()
        audit(life.engine)
    assert life.seen["admits"] > 100
    assert life.seen["shrinks"] > 0
    assert life.seen["WaitingForPreemptedWorkloads"] > 20


def test_the_same_life_twice_is_the_same() -> None:
    def lived() -> tuple[object, ...]:
        life = Life("tree", 7)
        for _ in range(600):
            life.step()
        return life.engine.reservations(), life.seen, life.engine.usage()

    assert lived() == lived()
