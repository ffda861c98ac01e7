"""The arithmetic of a cold start: phases add up to the wait, whatever the server leaves out or says in the wrong order."""

from __future__ import annotations

import pytest

from tenure_studies.cold_start.phases import PHASES, difference, order, percentile, split, spread

ASKED, TOLD = 1000.0, 1010.0
SAID: dict[str, object] = {
    "pid": 7, "process_started_at": 1000.5, "main_at": 1000.75, "imports_done_at": 1001.75, "load_done_at": 1004.75,
    "compile_done_at": 1008.75, "ready_at": 1009.0, "first_token_at": 1009.875,
}  # fmt: skip
LENGTHS = (0.5, 0.25, 1.0, 3.0, 4.0, 0.25, 0.875, 0.125)


def total(phases: dict[str, float | None]) -> float:
    return sum(seconds for seconds in phases.values() if seconds is not None)


def test_each_phase_ends_where_the_server_says() -> None:
    parts = split(ASKED, TOLD, SAID)
    assert tuple(parts.phases.values()) == LENGTHS
    assert list(parts.phases) == list(PHASES)
    assert total(parts.phases) == 10.0
    assert parts.disbelieved == []


@pytest.mark.parametrize("missing", [name for name in PHASES.values() if name is not None])
@pytest.mark.parametrize("how", ["null", "absent"])
def test_what_is_not_told_is_null_and_its_time_is_in_the_next_phase(missing: str, how: str) -> None:
    said = dict(SAID)
    if how == "null":
        said[missing] = None
    else:
        del said[missing]
    phases = split(ASKED, TOLD, said).phases
    names = list(PHASES)
    place = list(PHASES.values()).index(missing)
    assert phases[names[place]] is None
    assert phases[names[place + 1]] == LENGTHS[place] + LENGTHS[place + 1]
    assert total(phases) == 10.0


@pytest.mark.parametrize("said", [None, {}, {"pid": 3}, dict.fromkeys(SAID), {"ready_at": "soon", "main_at": True}])
def test_a_server_that_says_nothing_has_no_phases(said: dict[str, object] | None) -> None:
    assert set(split(ASKED, TOLD, said).phases.values()) == {None}


def test_a_gap_below_nothing_within_a_tick_is_no_time() -> None:
    parts = split(ASKED, TOLD, SAID | {"main_at": 1000.49})  # a process's start is told to 10 ms
    assert parts.phases["process_start"] == 0.0
    assert parts.phases["imports"] == 1.25
    assert parts.disbelieved == []
    assert total(parts.phases) == 10.0


@pytest.mark.parametrize(
    ("name", "moment"),
    [("main_at", 1000.4), ("ready_at", 1004.0), ("process_started_at", 999.0), ("load_done_at", 1010.5)],
)
def test_a_moment_out_of_order_is_not_believed(name: str, moment: float) -> None:
    parts = split(ASKED, TOLD, SAID | {name: moment})
    assert parts.disbelieved == [name]
    assert parts.phases[next(phase for phase, end in PHASES.items() if end == name)] is None
    assert total(parts.phases) == 10.0


def test_an_answer_that_came_a_hair_before_the_server_says_it_gave_it() -> None:
    parts = split(ASKED, TOLD, SAID | {"first_token_at": 1010.01})
    assert parts.phases["delivery"] == 0.0
    assert total(parts.phases) == 10.0


def test_a_server_that_compiles_for_its_first_question() -> None:
    parts = split(
        ASKED, TOLD, SAID | {"ready_at": 1005.0}
    )  # ready, it says, and then it compiled for nearly four seconds
    assert parts.phases["compile"] == 4.0
    assert parts.phases["ready"] is None
    assert parts.phases["first_token"] == 1.125


def test_the_order_begins_with_empty_caches_and_goes_on_in_shuffled_pairs() -> None:
    planned = order(20, 5)
    assert planned[0] == ("kept", 0)
    assert planned == order(20, 5) != order(20, 6)
    pairs = [planned[place : place + 2] for place in range(1, len(planned), 2)]
    assert [sorted(pair) for pair in pairs] == [[("fresh", n), ("kept", n)] for n in range(1, 21)]
    assert len({pair[0][0] for pair in pairs}) == 2, "neither arm always comes first"


def test_percentiles_and_spread() -> None:
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.5) == 2.5
    assert percentile([5.0], 0.9) == 5.0
    assert percentile([0.0, 10.0], 0.9) == 9.0
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
    assert spread([None, 1.0, 3.0, None]) == {"n": 2, "mean": 2.0, "p50": 2.0, "p90": 2.8, "min": 1.0, "max": 3.0}
    assert spread([None]) is None


def test_a_difference_has_an_interval_that_its_seed_decides() -> None:
    kept, fresh = [1.0, 1.1, 0.9, 1.05, 0.95], [3.0, 3.21, 2.9, 3.13, 2.8, 3.04]
    found = difference(kept, fresh, "0/load")
    assert found is not None
    assert found["median"] == pytest.approx(2.02)
    assert 1.6 < found["low"] < 2.02 < found["high"] < 2.4
    assert difference(kept, fresh, "0/load") == found
    same = difference(kept, list(reversed(kept)), "0/load")
    assert same is not None
    assert same["low"] < 0 < same["high"], "no difference is not told from nothing"
    assert difference([1.0], fresh, "0") is None
    assert difference([1.0, None], fresh, "0") is None
