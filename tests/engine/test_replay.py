"""Virtual time: the replay decides as the engine does, and counts what came of it."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.domain.amounts import GPU
from tenure.domain.ids import Instant
from tenure.engine import EngineOptions
from tenure.engine.lives import Arrival, ReplayOptions, Resume
from tenure.engine.replay import replay
from tenure.testing import lab

S = 1_000_000
ONE = {"queues": {"q": {"owns": {"gpu": 2, "memory": "16Gi"}}}}
CARD = lab.cards([{"id": "c", "shares": 2, "memory": "16Gi"}])
TWO = {
    "queues": {
        "a": {"cohort": "all", "owns": {"gpu": 4}, "within": "LowerPriority", "reclaim": "Any"},
        "b": {"cohort": "all", "owns": {"gpu": 4}, "within": "LowerPriority", "reclaim": "Any"},
    }
}


def arrival(job: str, *, at: int = 0, runs: int | None = 10, cancelled: int | None = None, **asks: Any) -> Arrival:
    asks = {"queue": "q", "gpu": 1, **asks}
    w = lab.workload({"job": job, **asks}, at=Instant(at * S), priorities={})
    gone = None if cancelled is None else Instant(cancelled * S)
    return Arrival(workload=w, at=w.created_at, runtime_us=None if runs is None else runs * S, cancelled_at=gone)


def test_the_real_schedulers_decisions_are_reproduced() -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "engine_baseline.py"
    spec = importlib.util.spec_from_file_location("engine_baseline_replayed", path)
    assert spec is not None
    assert spec.loader is not None
    load = sys.modules["engine_baseline_replayed"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(load)
    arrivals = [
        Arrival(workload=w, at=Instant(at), runtime_us=kind.runtime_ms * 1000)
        for at, w, kind in load.arrivals(1, 6, load.BASELINE)
    ]
    options = ReplayOptions(tick_us=1000, resume=Resume.FROM_SCRATCH, engine=EngineOptions(shrink_gangs=False))
    done = replay(load.policy(1, 6), (), arrivals, now=Instant(0), options=options)
    assert (done.admissions, done.evictions, done.cycles, done.last_end) == (4215, 1215, 1035, 76_905_000)


def test_waits_ends_and_use_are_counted() -> None:
    story = [arrival("1"), arrival("2"), arrival("3"), arrival("late", at=100, runs=None)]
    done = replay(lab.policy(ONE), CARD, story, options=ReplayOptions(until=Instant(200 * S)))
    assert {k: (life.wait_us, life.finished) for k, life in done.lives.items()} == {
        "1": (0, 10 * S),
        "2": (0, 10 * S),
        "3": (10 * S, 20 * S),
        "late": (0, None),
    }
    assert done.used["q", GPU] == (3 * 10 + 100) * S


@pytest.mark.parametrize(("resume", "end"), [(Resume.REMAINING, 25), (Resume.FROM_SCRATCH, 30)])
def test_the_preempted_comes_back_with_the_rest_or_with_all(resume: Resume, end: int) -> None:
    policy = lab.policy({"queues": {"q": {"owns": {"gpu": 2}, "within": "LowerPriority"}}})
    story = [arrival("low", runs=20, gpu=2), arrival("high", at=5, runs=5, gpu=2, priority=10)]
    done = replay(policy, (), story, options=ReplayOptions(resume=resume))
    assert done.lives["low"].preempted == done.lives["high"].preempting == 1
    assert done.lives["high"].finished == 10 * S
    assert done.lives["low"].finished == end * S


def test_a_stop_that_takes_time_keeps_the_quota_until_then() -> None:
    policy = lab.policy({"queues": {"q": {"owns": {"gpu": 2}, "within": "LowerPriority"}}})
    story = [arrival("low", runs=20, gpu=2), arrival("high", at=5, runs=5, gpu=2, priority=10)]
    done = replay(policy, (), story, options=ReplayOptions(evict_us=3 * S))
    assert done.lives["high"].started == 8 * S
    assert done.lives["low"].finished == (13 + 12) * S


def test_a_cancelled_one_leaves_the_line_or_the_card() -> None:
    story = [arrival("1", runs=None, gpu=2, cancelled=7), arrival("2", cancelled=3), arrival("3", gpu=2)]
    done = replay(lab.policy(ONE), CARD, story)
    assert done.lives["2"].cancelled
    assert done.lives["2"].started is None
    assert done.lives["3"].started == 7 * S


def test_two_that_take_turns_for_ever_do_not_stop_time() -> None:
    policy = lab.policy({"queues": {"q": {"owns": {"gpu": 1}, "within": "Any"}}})
    done = replay(policy, (), [arrival("1"), arrival("2"), arrival("3", at=50)])
    assert all(life.finished is not None for life in done.lives.values()) or done.unsettled


jobs = st.lists(
    st.tuples(
        st.integers(0, 30),  # arrival, s
        st.integers(1, 20),  # runtime, s
        st.integers(1, 3),  # shares
        st.sampled_from([0, 0, 10]),  # priority
        st.sampled_from(["a", "b"]),
    ),
    min_size=1,
    max_size=25,
)


def told(raw: list[tuple[int, int, int, int, str]], **fixed: Any) -> list[Arrival]:
    return [
        arrival(f"{n:02}", at=at, runs=runs, **{"gpu": gpu, "priority": priority, "queue": queue, **fixed})
        for n, (at, runs, gpu, priority, queue) in enumerate(raw)
    ]


def facts(story: list[Arrival], policy: Any, **options: Any) -> object:
    done = replay(lab.policy(policy), (), story, now=Instant(0), options=ReplayOptions(**options))
    return sorted((k, x.started, x.finished, x.preempted, x.preempting) for k, x in done.lives.items())


@settings(max_examples=60, deadline=None)
@given(jobs)
def test_the_same_question_has_the_same_answer(raw: list[tuple[int, int, int, int, str]]) -> None:
    assert facts(told(raw), TWO) == facts(told(raw), TWO)
    assert facts(told(raw), TWO) == facts(list(reversed(told(raw))), TWO)


@settings(max_examples=60, deadline=None)
@given(jobs, st.sampled_from(["StrictFIFO", "BestEffortFIFO"]), st.sampled_from(["Never", "LowerPriority", "Any"]))
def test_sparing_cycles_changes_no_decision(
    raw: list[tuple[int, int, int, int, str]], strategy: str, reclaim: str
) -> None:
    queues = {
        name: {"cohort": "all", "owns": {"gpu": 3}, "strategy": strategy, "within": "LowerPriority", "reclaim": reclaim}
        for name in ("a", "b")
    }
    both = told(raw)
    assert facts(both, {"queues": queues}) == facts(both, {"queues": queues}, spare=False)
    alone = told(raw, queue="a")
    assert facts(alone, {"queues": queues}) == facts(alone, {"queues": queues}, spare=False)


@settings(max_examples=120, deadline=None)
@given(st.randoms(use_true_random=False))
def test_sparing_cycles_changes_no_decision_on_cards_either(rng: random.Random) -> None:
    """Several trees that share cards, flavors to choose from, gangs, whole cards, cancellations, stops that take time."""
    names, flavors = ["a", "b", "c"][: rng.choice([1, 1, 2, 3])], rng.choice([1, 1, 2])
    queues = {
        name: {
            "cohort": rng.choice(["x", "x", None]),
            "owns": {
                f"f{k}": {"gpu": rng.choice([0, 2, 4, 8]), "memory": f"{rng.choice([8, 16])}Gi"} for k in range(flavors)
            },
            "strategy": rng.choice(["StrictFIFO", "BestEffortFIFO", "BestEffortFIFO"]),
            "within": rng.choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
            "reclaim": rng.choice(["Never", "LowerPriority", "Any"]),
            "while_borrowing": rng.choice(["Never", "LowerPriority"]),
        }
        for name in names
    }
    cards = lab.cards({"id": f"c{k}", "flavor": f"f{k}", "shares": 4, "memory": "16Gi"} for k in range(flavors))
    story = [
        arrival(
            f"{n:02}",
            at=rng.randrange(40),
            runs=rng.randrange(1, 25),
            cancelled=rng.randrange(40, 70) if rng.random() < 0.1 else None,
            queue=rng.choice(names),
            gpu=rng.choice([1, 1, 2, 3]),
            memory=f"{rng.choice([1, 4, 9])}Gi",
            priority=rng.choice([0, 0, 5, 10]),
            count=rng.choice([1, 1, 2]),
            min=1 if rng.random() < 0.1 else None,
            whole_card=rng.random() < 0.1,
        )
        for n in range(rng.randrange(3, 20))
    ]
    stop_us = rng.choice([0, 0, 2 * S])
    plain, spared = (
        replay(lab.policy({"queues": queues}), cards, story, options=ReplayOptions(spare=spare, evict_us=stop_us))
        for spare in (False, True)
    )
    if not plain.unsettled:
        told_of = [sorted((k, x.started, x.finished, x.preempted) for k, x in r.lives.items()) for r in (plain, spared)]
        assert told_of[0] == told_of[1]


@settings(max_examples=60, deadline=None)
@given(jobs)
def test_everything_that_fits_runs_once_and_for_its_time(raw: list[tuple[int, int, int, int, str]]) -> None:
    done = replay(lab.policy(TWO), (), told(raw), now=Instant(0))
    for life in done.lives.values():
        assert life.finished is not None
        assert life.finished - life.arrived >= (life.runtime_us or 0)
    asked = sum(gpu * runs for _, runs, gpu, _, _ in raw) * S
    assert done.used["a", GPU] + done.used["b", GPU] == asked
