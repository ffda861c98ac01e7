"""What keeps a workload from starting on a card that is cleared for it: asked before anybody is made to leave."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

import pytest

from tenure.domain.ids import CardId, Instant, WorkloadKey
from tenure.domain.workload import Workload
from tenure.engine import Engine
from tenure.testing.lab import cards, policy, workload

PRIORITIES = {"high": 100, "low": 1}
NOW = Instant(1000)
FIRST, SECOND = CardId("gpu-0"), CardId("gpu-1")


def wanted(**raw: Any) -> Workload:
    raw = {"queue": "main", "job": "wanted", "gpu": 4, "memory": "1Gi", "priority": "low", **raw}
    made: Workload = workload(raw, at=Instant(500), priorities=PRIORITIES)
    return made


def lab(*jobs: dict[str, Any], count: int = 2, **main: Any) -> Engine:
    queues = {
        "main": {"cohort": "all", "owns": {"gpu": 8, "memory": "80Gi"}, "within": "LowerPriority"} | main,
        "other": {"cohort": "all", "owns": {"gpu": 0, "memory": 0}},
    }
    engine = Engine(policy({"queues": queues}), cards({"id": f"gpu-{n}"} for n in range(count)))
    for at, raw in enumerate(jobs):
        engine.add(workload({"priority": "low", "memory": "1Gi", **raw}, at=Instant(at), priorities=PRIORITIES))
        engine.cycle(Instant(at))
    return engine


def place_of(engine: Engine, key: str) -> CardId:
    (held,) = [held for held in engine.reservations() if held.workload.key == key]
    return held.admission.placements[0].card


def obstacle(
    engine: Engine,
    card: CardId = FIRST,
    without: tuple[str, ...] = (),
    returning: tuple[str, ...] = (),
    **raw: Any,
) -> str | None:
    others = frozenset(one.id for one in engine.cards) - {card}
    asked = replace(wanted(**raw), avoid=others)
    before = (engine.reservations(), engine.places())
    leave, come_back = [WorkloadKey(key) for key in without], [WorkloadKey(key) for key in returning]
    found = engine.obstacle(asked, card=card, without=leave, returning=come_back, now=NOW)
    assert (engine.reservations(), engine.places()) == before, "asking changes nothing"
    return None if found is None else f"{found.reason}: {found.message} {[b.message for b in found.blockers]}"


def test_nothing_is_in_the_way_of_one_whose_card_is_cleared() -> None:
    engine = lab({"job": "there", "queue": "other", "gpu": 8}, count=1)
    assert obstacle(engine) is not None
    assert obstacle(engine, without=("there",)) is None


@pytest.mark.parametrize("in_line", [True, False])
def test_one_that_may_enter_takes_its_room_before_it(in_line: bool) -> None:
    engine = lab(count=1)
    first = workload(
        {"job": "first", "queue": "main", "gpu": 5, "memory": "1Gi", "priority": "high"}, at=NOW, priorities=PRIORITIES
    )
    if in_line:
        engine.add(replace(first, avoid=frozenset({FIRST})))
    for gpu, enters, is_free in ((3, True, True), (4, True, False), (4, False, True)):
        entering = [first] if enters else []
        found = engine.obstacle(wanted(gpu=gpu), card=FIRST, without=(), entering=entering, now=NOW)
        assert (found is None) is is_free, (gpu, enters)


def test_a_place_is_not_enough_where_the_quota_is_anothers() -> None:
    engine = lab({"job": "a", "queue": "main", "gpu": 8}, {"job": "b", "queue": "other", "gpu": 0})
    free = SECOND if place_of(engine, "a") == FIRST else FIRST
    said = obstacle(engine, free)
    assert said is not None
    assert said.startswith("WaitingForQuota")
    assert "0 is free" in said
    assert obstacle(engine, free, without=("a",)) is None
    assert obstacle(engine, free, priority="high") is None, "it may preempt"


def test_victims_that_are_leaving_already_are_not_in_the_way() -> None:
    engine = lab({"job": "a", "queue": "main", "gpu": 8})
    free = SECOND if place_of(engine, "a") == FIRST else FIRST
    engine.evict(WorkloadKey("a"))
    assert obstacle(engine, free, priority="high") is None
    assert obstacle(engine, free) is not None, "for whom it left, nobody knows: its quota is not free yet"


def test_one_who_stays_leaves_no_room() -> None:
    engine = lab({"job": "stays", "queue": "main", "gpu": 3, "priority": "high"}, count=1)
    assert obstacle(engine, gpu=5) is None
    said = obstacle(engine, gpu=5, memory="80Gi")
    assert said is not None
    assert obstacle(engine, gpu=6, priority="low") is not None


@pytest.mark.parametrize(
    ("changes", "asks", "says"),
    [
        ({"stop": "Hold"}, {}, "ClusterQueue main is stopped"),
        ({}, {"queue": "nowhere"}, "LocalQueue nowhere doesn't exist"),
        ({}, {"gpu": 9}, "ExceedsMaxQuota"),
        ({}, {"queue": "other", "gpu": 8, "memory": "81Gi"}, "81"),
    ],
)
def test_what_the_policy_forbids_is_said(changes: dict[str, Any], asks: dict[str, Any], says: str) -> None:
    said = obstacle(lab(count=1, **changes), **asks)
    assert said is not None
    assert says in said


def test_a_strict_queue_lets_nobody_past_its_head() -> None:
    blocked = {"job": "head", "queue": "main", "gpu": 8}
    busy = {"job": "busy", "queue": "main", "gpu": 1}
    assert obstacle(lab(busy, blocked, strategy="StrictFIFO"), SECOND) is not None
    assert obstacle(lab(busy, blocked), SECOND) is None
    said = obstacle(lab(busy, blocked, strategy="StrictFIFO"), SECOND)
    assert said is not None
    assert "first is head" in said


def test_who_comes_first_takes_the_quota_that_is_freed() -> None:
    """The head waits for quota alone: of the two cards the other one has room for it."""
    engine = lab({"job": "there", "queue": "main", "gpu": 6}, {"job": "head", "queue": "main", "gpu": 6})
    there = place_of(engine, "there")
    assert obstacle(engine, there, without=("there",)) is not None
    assert obstacle(engine, there, without=("there",), priority="high") is None
    assert obstacle(engine, there, without=("there",), gpu=2) is None, "there is enough for both"


def test_who_has_to_leave_takes_the_same_quota_on_another_card() -> None:
    """It ranks higher: made to leave, it would be back before the card is clear, and be made to leave again."""
    engine = lab({"job": "there", "queue": "main", "gpu": 6, "priority": "high"})
    there = place_of(engine, "there")
    assert obstacle(engine, there, without=("there",)) is None, "it ends"
    assert obstacle(engine, there, returning=("there",)) is not None
    assert obstacle(engine, there, returning=("there",), gpu=2) is None, "there is enough for both"
    alone = lab({"job": "there", "queue": "main", "gpu": 6, "priority": "high"}, count=1)
    assert obstacle(alone, returning=("there",)) is None, "it has nowhere to go"


def test_a_long_line_is_asked_about_as_quickly_as_a_short_one() -> None:
    engine = lab({"job": "busy", "queue": "main", "gpu": 8}, strategy="StrictFIFO")
    for n in range(5000):
        raw = {"queue": "main", "job": f"job {n:05}", "gpu": 1 + n % 3, "memory": "1Gi", "priority": "low"}
        engine.add(workload(raw, at=Instant(2 + n), priorities=PRIORITIES))
    began = perf_counter()
    for _ in range(10):
        assert engine.obstacle(wanted(), card=SECOND, without=[WorkloadKey("busy")], now=NOW) is not None
    assert (perf_counter() - began) / 10 < 0.1
