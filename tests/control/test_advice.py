"""What each idle window would have cost: properties, a simulation second by second of thought, and the rule itself."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.control.advice import DAY, HOUR, WINDOWS, Held, Traffic, WakeTimes, advise, spell, wakes_in
from tenure.domain.events import Event, EventKind
from tenure.domain.ids import Instant

REQUESTS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 40)), max_size=30)


def by_hand(requests: list[tuple[int, int]], window: int, load: int, until: int) -> Held:
    """The model as `control/models.py` keeps it, one request after the other."""
    wakes = cold = waited = held = 0
    woken = ready = quiet_since = None
    for begin, service in sorted(requests):
        if quiet_since is None or begin >= quiet_since + window:
            if quiet_since is not None:
                held += min(quiet_since + window, until) - woken
            woken, ready = begin, begin + load
            quiet_since = ready
            wakes += 1
            cold += 1
            waited += load
        elif begin < ready:
            cold += 1
            waited += ready - begin
        quiet_since = max(quiet_since, max(begin, ready) + service)
    if quiet_since is not None:
        held += min(quiet_since + window, until) - woken
    return Held(wakes=wakes, held_s=held, cold=cold, waited_s=waited)


@given(REQUESTS, st.integers(1, 120), st.integers(0, 150))
@settings(max_examples=400)
def test_the_fast_way_is_the_way_by_hand(requests: list[tuple[int, int]], window: int, load: int) -> None:
    found = Traffic(requests, until=600).under(window, load=load)
    assert found == by_hand(requests, window, load, 600)


@given(REQUESTS, st.integers(0, 150), st.integers(1, 120), st.integers(0, 120))
@settings(max_examples=400)
def test_a_longer_window_never_wakes_more_often(
    requests: list[tuple[int, int]], load: int, window: int, more: int
) -> None:
    traffic = Traffic(requests, until=10_000)
    short, long = traffic.under(window, load=load), traffic.under(window + more, load=load)
    assert long.wakes <= short.wakes


@given(REQUESTS, st.integers(0, 150), st.integers(1, 120), st.integers(0, 120))
@settings(max_examples=500)
def test_a_longer_window_is_never_ready_for_less(
    requests: list[tuple[int, int]], load: int, window: int, more: int
) -> None:
    traffic = Traffic(requests, until=10_000)
    short, long = traffic.under(window, load=load), traffic.under(window + more, load=load)
    assert long.held_s - load * long.wakes >= short.held_s - load * short.wakes


def test_a_load_that_is_saved_may_outweigh_the_longer_window() -> None:
    """Why share-hours as a whole do fall sometimes: two requests six minutes apart, and a load of five minutes."""
    traffic = Traffic([(0, 0), (361, 0)], until=10_000)
    assert traffic.under(60, load=300).held_s == 2 * 360
    assert traffic.under(62, load=300).held_s == 361 + 62
    assert traffic.under(60, load=0).held_s < traffic.under(62, load=0).held_s


def day(
    *, every: float, days: int = 7, service: float = 2.0, start: float = 8 * HOUR, end: float = 18 * HOUR
) -> list[tuple[float, float]]:
    """Somebody who asks at even distances in the hours of work."""
    return [
        (n * DAY + start + k * every, service) for n in range(days) for k in range(int((end - start) / every))
    ]  # fmt: skip


STEADY = WakeTimes(count=9, p50_s=20.0, p90_s=30.0)


def test_the_curve_goes_from_a_minute_over_a_day_to_resident() -> None:
    advice = advise(Traffic(day(every=700), until=7 * DAY), span_s=7 * DAY, wakes=STEADY, shares=2, idle_after_s=HOUR)
    assert [row.idle_after_s for row in advice.rows] == [*WINDOWS, None]
    assert [row.wakes for row in advice.rows] == sorted((row.wakes for row in advice.rows), reverse=True)
    last = advice.rows[-1]
    assert (last.wakes, last.held_s, last.waited_s, last.cost) == (0, DAY, 0, 2 * DAY)
    by = {row.idle_after_s: row for row in advice.rows}
    assert by[600].wakes == 51  # each request of a day's 51 finds it asleep
    assert by[900].wakes == 1
    assert by[900].waited_s == by[900].waited_per_call_s == 20.0


def test_the_rule_is_the_smallest_sum_and_its_price_is_the_users() -> None:
    traffic = Traffic(day(every=700), until=7 * DAY)
    dear = advise(traffic, span_s=7 * DAY, wakes=STEADY, shares=1, idle_after_s=6 * HOUR, second_is_worth=600)
    assert dear.idle_after_s == 900
    assert dear.reason.startswith("15m costs least: ")
    assert "; as it is (6h) it is " in dear.reason
    cheap = advise(traffic, span_s=7 * DAY, wakes=STEADY, shares=1, idle_after_s=6 * HOUR, second_is_worth=1)
    assert cheap.idle_after_s == 60
    for advice in (dear, cheap):
        chosen = next(row for row in advice.rows if row.idle_after_s == advice.idle_after_s)
        assert chosen.cost == min(row.cost or 0 for row in advice.rows[:-1])


def test_what_is_set_stays_where_nothing_is_much_cheaper() -> None:
    traffic = Traffic(day(every=700), until=7 * DAY)
    advice = advise(traffic, span_s=7 * DAY, wakes=STEADY, shares=1, idle_after_s=1000, second_is_worth=600)
    assert advice.idle_after_s == 1000
    assert "16m40s is set and nothing is cheaper by more than 5 %" in advice.reason


def test_slow_wakes_and_a_resident_one_are_named_where_they_matter() -> None:
    slow = WakeTimes(count=9, p50_s=1.0, p90_s=300.0)
    advice = advise(Traffic(day(every=700), until=7 * DAY), span_s=7 * DAY, wakes=slow, shares=1, idle_after_s=60)
    assert advice.idle_after_s == 60
    assert "as slow as one in ten (300 s), it would be 15m" in advice.reason
    dear = advise(
        Traffic(day(every=700), until=7 * DAY),
        span_s=7 * DAY,
        wakes=STEADY,
        shares=1,
        idle_after_s=60,
        second_is_worth=1e5,
    )
    assert "; resident would be 24.0" in dear.reason


@given(REQUESTS, st.integers(1, 50), st.integers(1, 50))
def test_dearer_waiting_never_makes_callers_wait_more(requests: list[tuple[int, int]], price: int, more: int) -> None:
    traffic = Traffic([(a, s) for a, s in requests] * 25, until=DAY)
    told = [
        advise(traffic, span_s=DAY, wakes=STEADY, shares=1, idle_after_s=None, second_is_worth=p, windows=(5, 20, 60, 300))
        for p in (price, price + more)
    ]  # fmt: skip
    waits = [next((r.waited_s or 0 for r in a.rows if r.idle_after_s == a.idle_after_s), 0) for a in told]
    assert not requests or waits[1] <= waits[0] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("requests", "span", "wakes", "said"),
    [
        (day(every=700)[:19], 7 * DAY, STEADY, "19 requests of 20"),
        (day(every=700), 3 * HOUR + 12.3456, STEADY, "3h12s of watching of 24h"),
        (day(every=700), 7 * DAY, WakeTimes(count=1, p50_s=3, p90_s=3), "1 measured wake of 3"),
        ([], 0.0, WakeTimes(), "0 requests of 20, 0s of watching of 24h, 0 measured wakes of 3"),
    ],
)
def test_little_is_no_ground_for_advice(
    requests: list[tuple[float, float]], span: float, wakes: WakeTimes, said: str
) -> None:
    advice = advise(Traffic(requests, until=7 * DAY), span_s=span, wakes=wakes, shares=1, idle_after_s=HOUR)
    assert advice.idle_after_s is None
    assert advice.reason == f"too little is known to recommend anything: {said}"
    assert len(advice.rows) == len(WINDOWS) + 1
    assert all((row.waited_s is None) == (wakes.count == 0) for row in advice.rows[:-1])


def test_a_wake_lasts_from_being_asked_for_until_it_is_ready() -> None:
    def line(at: float, kind: EventKind, model: str = "small", **data: str) -> Event:
        return Event(kind=kind, at=Instant(int(at * 1e6)), data={"model": model, **data})

    woken, changed = EventKind.MODEL_WOKEN, EventKind.MODEL_CHANGED
    diary = [
        line(0, changed, state="ready"),  # of a daemon before: nobody knows when it was asked for
        line(10, woken), line(11, changed, state="queued"), line(11, woken, "other"), line(14, changed, state="ready"),
        line(20, woken), line(25, changed, state="failed"), line(26, changed, state="ready"),
        line(30, woken), line(40, changed, state="ready"), line(41, changed, state="ready"),
    ]  # fmt: skip
    assert wakes_in(diary, "small") == WakeTimes(count=2, p50_s=7.0, p90_s=pytest.approx(9.4))
    assert wakes_in(diary, "none") == WakeTimes()


@pytest.mark.parametrize(("seconds", "said"), [(None, "resident"), (0.5, "0.5s"), (1234.5, "1234.5s"), (90, "1m30s"), (3600, "1h"), (5400, "1h30m"), (86400, "24h")])  # fmt: skip
def test_windows_are_spelled_as_documents_spell_them(seconds: float | None, said: str) -> None:
    assert spell(seconds) == said


def test_a_million_requests_take_a_few_seconds() -> None:
    """CPU seconds: on a machine that does other things as well, a clock on the wall tells of those."""
    chance = random.Random(4)
    requests = [(chance.random() * 7 * DAY, chance.random() * 3) for _ in range(1_000_000)]
    begun = time.process_time()
    advise(Traffic(requests, until=7 * DAY), span_s=7 * DAY, wakes=STEADY, shares=1, idle_after_s=HOUR)
    assert time.process_time() - begun < 10
