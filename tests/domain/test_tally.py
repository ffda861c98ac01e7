"""Durations are counted as monitoring systems read them: buckets that add up, bounds that include."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tenure.domain.tally import SLOW, Tally


def test_waiting_has_kueues_fourteen_bounds() -> None:
    assert SLOW == (1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240)


def test_a_bound_includes_itself_and_a_negative_time_is_none() -> None:
    tally = Tally((1.0, 2.5))
    for seconds in (-3.0, 1.0, 1.1, 2.5, 9.0):
        tally.observe(seconds)
    assert tally.cumulative() == [(1.0, 2), (2.5, 4), (math.inf, 5)]
    assert tally.seconds == 14.6 - 1.0


@given(st.lists(st.floats(0, 1e6)))
def test_every_observation_is_in_exactly_one_bucket(seen: list[float]) -> None:
    tally = Tally()
    for seconds in seen:
        tally.observe(seconds)
    lines = tally.cumulative()
    assert lines[-1] == (math.inf, len(seen)) == (math.inf, tally.count)
    assert all(number == sum(1 for x in seen if x <= bound) for bound, number in lines)
