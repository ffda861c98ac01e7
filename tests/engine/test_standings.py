"""Who waits and who holds, counted for monitoring, says what the engine says of each one."""

from __future__ import annotations

import math

import pytest

from tenure.domain.ids import Instant
from tenure.engine import Engine
from tenure.engine.fairness import Fairness
from tenure.testing import lab

QUEUES = {
    "a": {"cohort": "all", "owns": {"gpu": 4}, "weight": 2},
    "b": {"cohort": "all", "owns": {"gpu": 4}},
    "free": {"cohort": "all", "owns": {"gpu": 0}, "weight": 0},
    "shut": {"owns": {"gpu": 4}, "stop": "Hold"},
    "strict": {"owns": {"gpu": 1}, "strategy": "StrictFIFO"},
}


def engine_with(*jobs: tuple[str, str, int]) -> Engine:
    engine = Engine(lab.policy({"queues": QUEUES, "fair_sharing": True}))
    for at, (job, queue, gpu) in enumerate(jobs):
        engine.add(lab.workload({"job": job, "queue": queue, "gpu": gpu}, at=Instant(at), priorities={}))
    for _ in range(20):
        engine.cycle(Instant(10**6))
    return engine


def test_everybody_is_counted_once_under_the_reason_they_have() -> None:
    engine = engine_with(
        ("1", "a", 4), ("2", "a", 2), ("3", "a", 9), ("4", "a", 9), ("5", "b", 4), ("6", "b", 1), ("7", "b", 1),
        ("8", "shut", 1), ("9", "nowhere", 1), ("10", "strict", 1), ("11", "strict", 1), ("12", "strict", 1),
    )  # fmt: skip
    seen = {(s.queue, s.cluster_queue, s.place, s.reason): (s.count, s.oldest) for s in engine.standings()}
    assert seen == {
        ("a", "a", "holds", ""): (1, 0),
        ("a", "a", "inadmissible", "WaitingForQuota"): (1, 1),
        ("a", "a", "inadmissible", "ExceedsMaxQuota"): (2, 2),
        ("b", "b", "holds", ""): (1, 4),
        ("b", "b", "inadmissible", "WaitingForQuota"): (2, 5),
        ("shut", "shut", "inadmissible", "Suspended"): (1, 7),
        ("nowhere", "", "aside", "Misconfigured"): (1, 8),
        ("strict", "strict", "holds", ""): (1, 9),
        ("strict", "strict", "active", "WaitingForQuota"): (1, 10),  # the head of a strict queue is not parked
        ("strict", "strict", "active", "PendingEvaluation"): (1, 11),
    }


def test_the_weighted_share_is_what_a_queue_borrows_of_what_could_be_lent() -> None:
    engine = engine_with(("1", "a", 6), ("2", "free", 1))
    fairness = Fairness(engine.policy)
    for _ in range(2):  # asked twice, the usage of the first time is not counted again
        shares = fairness.weighted_shares(engine.usage())
        assert shares["a"] == pytest.approx(2 * 1000 / 8 / 2)  # two of eight that the cohort has, weight 2
        assert shares["b"] == 0
        assert math.isinf(shares["free"])
        (cohort,) = fairness.cohorts()
        assert (cohort.name, cohort.queues, cohort.weighted_share) == ("all", ("a", "b", "free"), 0)
        assert (list(cohort.quota.values()), list(cohort.used.values())) == ([8], [7])
    assert [name for name in QUEUES if not fairness.is_active(name)] == ["shut"]
