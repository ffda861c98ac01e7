"""What a token may ask, and how much: decided with no clock, so that a minute costs nothing here."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenure.gateway.allowance import DAY, Allowances, Denied, Rights, allows, grantable, opens

NOON = 20_000 * DAY + 43_200.0
IDS = {"assistant": "assistant", "default": "assistant", "sql": "sql"}


def id_of(name: str) -> str:
    return IDS.get(name, name)


def rights(**limits: Any) -> Rights:
    return Rights(name="ci", **limits)


def admitted(allowances: Allowances, of: Rights, times: list[float]) -> list[float]:
    return [now for now in times if is_in(allowances.admit(of, now))]


def is_in(verdict: Denied | int) -> bool:
    return not isinstance(verdict, Denied)


def refused(verdict: Denied | int | None) -> Denied:
    assert isinstance(verdict, Denied)
    return verdict


def test_of_fifty_at_once_ten_pass_and_after_a_minute_ten_more() -> None:
    allowances, of = Allowances(), rights(requests_per_minute=10)
    assert len(admitted(allowances, of, [NOON] * 50)) == 10
    denied = refused(allowances.admit(of, NOON + 12))
    assert (denied.status, denied.code, denied.again) == (429, "rate_limit_exceeded", True)
    assert denied.retry_after_s is not None
    assert "tenure token set ci --requests-per-minute" in denied.message
    assert 47.9 < denied.retry_after_s <= 48.2
    assert len(admitted(allowances, of, [NOON + 12 + denied.retry_after_s] * 50)) == 10


@given(st.lists(st.floats(0, 400), min_size=1, max_size=120), st.integers(1, 8))
def test_never_more_than_the_limit_within_any_minute(times: list[float], limit: int) -> None:
    allowances = Allowances()
    passed = admitted(allowances, rights(requests_per_minute=limit), [NOON + t for t in sorted(times)])
    for first, last in zip(passed, passed[limit:], strict=False):
        assert last - first >= 60


@given(st.lists(st.floats(0, 200), min_size=1, max_size=60), st.integers(1, 5))
def test_whoever_waits_as_long_as_told_is_let_in(times: list[float], limit: int) -> None:
    allowances, of, now = Allowances(), rights(requests_per_minute=limit), NOON
    for at in sorted(times):
        now = max(now, NOON + at)
        denied = allowances.admit(of, now)
        if isinstance(denied, Denied):
            assert denied.retry_after_s is not None
            now += denied.retry_after_s + 1e-3
            assert is_in(allowances.admit(of, now))


def test_a_steady_client_at_its_limit_is_not_refused() -> None:
    times = [NOON + 1.01 * n for n in range(300)]
    assert admitted(Allowances(), rights(requests_per_minute=60), times) == times


def test_a_refused_request_costs_nothing() -> None:
    allowances, of = Allowances(), rights(requests_per_minute=1)
    assert admitted(allowances, of, [NOON + n for n in range(120)]) == [NOON, NOON + 61]


def test_model_tokens_of_a_minute_are_counted_when_a_request_is_over() -> None:
    allowances, of = Allowances(), rights(tokens_per_minute=100)
    assert admitted(allowances, of, [NOON, NOON]) == [NOON, NOON]
    allowances.settle("ci", 0, 90, NOON + 1)
    assert is_in(allowances.admit(of, NOON + 2))
    allowances.settle("ci", 0, 90, NOON + 5)
    denied = refused(allowances.admit(of, NOON + 6))
    assert denied.code == "rate_limit_exceeded"
    assert "model tokens a minute" in denied.message
    assert denied.retry_after_s is not None
    assert 55 <= denied.retry_after_s <= 55.2, "the first 90 have to leave"
    assert is_in(allowances.admit(of, NOON + 61.2))


def test_a_budget_renews_at_midnight_in_utc() -> None:
    allowances, of = Allowances(), rights(tokens_per_day=1000)
    allowances.settle("ci", 0, 1200, NOON)
    denied = refused(allowances.admit(of, NOON))
    assert (denied.status, denied.code, denied.again, denied.retry_after_s) == (
        429,
        "insufficient_quota",
        False,
        43_200,
    )
    assert "1,200 of the 1,000" in denied.message
    assert "renews at 2024-10-05T00:00:00Z" in denied.message
    assert refused(allowances.admit(of, NOON + 43_199)).code == "insufficient_quota"
    assert is_in(allowances.admit(of, NOON + 43_200))


def test_headers_are_openais_and_only_of_limits_that_there_are() -> None:
    allowances = Allowances()
    assert allowances.headers(rights(tokens_per_day=5), NOON) == []
    of = rights(requests_per_minute=10, tokens_per_minute=500)
    assert dict(allowances.headers(of, NOON))[b"x-ratelimit-reset-requests"] == b"0s"
    allowances.admit(of, NOON)
    allowances.settle("ci", 0, 700, NOON + 2)
    assert dict(allowances.headers(of, NOON + 30)) == {
        b"x-ratelimit-limit-requests": b"10",
        b"x-ratelimit-remaining-requests": b"9",
        b"x-ratelimit-reset-requests": b"30.1s",
        b"x-ratelimit-limit-tokens": b"500",
        b"x-ratelimit-remaining-tokens": b"0",
        b"x-ratelimit-reset-tokens": b"32.1s",
    }


def test_tokens_have_nothing_to_do_with_one_another() -> None:
    allowances = Allowances()
    one, other = Rights(name="one", requests_per_minute=1), Rights(name="other", requests_per_minute=1)
    assert is_in(allowances.admit(one, NOON))
    assert is_in(allowances.admit(other, NOON))
    assert not is_in(allowances.admit(one, NOON))


def test_another_limit_counts_what_was_used_already() -> None:
    allowances = Allowances()
    admitted(allowances, rights(), [NOON] * 8)
    assert len(admitted(allowances, rights(requests_per_minute=10), [NOON] * 8)) == 2
    assert len(admitted(allowances, rights(requests_per_minute=15), [NOON] * 8)) == 5


def test_use_outlives_a_restart() -> None:
    allowances, of = Allowances(), rights(requests_per_minute=10, tokens_per_day=1000)
    admitted(allowances, of, [NOON] * 7)
    allowances.settle("ci", 0, 999, NOON)
    kept = json.loads(json.dumps(allowances.kept(NOON)))
    later = Allowances()
    later.restore(kept, NOON + 5)
    assert later.headers(of, NOON + 5) == allowances.headers(of, NOON + 5)
    assert len(admitted(later, of, [NOON + 5] * 7)) == 3
    later.settle("ci", 0, 1, NOON + 5)
    assert refused(later.admit(of, NOON + 5)).code == "insufficient_quota"
    much_later = Allowances()
    much_later.restore(kept, NOON + 10 * DAY)
    assert much_later.kept(NOON + 10 * DAY)["tokens"] == {}, "what is over is forgotten"


def test_a_clock_that_jumps_locks_nobody_out_and_gives_no_second_budget() -> None:
    allowances, of = Allowances(), rights(requests_per_minute=2, tokens_per_day=100)
    allowances.settle("ci", 0, 100, NOON)
    assert refused(allowances.admit(of, NOON)).code == "insufficient_quota"
    assert len(admitted(allowances, of, [NOON + DAY] * 3)) == 2, "a day ahead is another day"
    assert refused(allowances.admit(of, NOON)).code == "insufficient_quota", "and back it is the first one again"
    rate = Allowances()
    assert len(admitted(rate, of, [NOON] * 3)) == 2
    assert len(admitted(rate, of, [NOON - 7200] * 3)) == 2, "two hours back: not locked out for two hours"
    assert not is_in(rate.admit(of, NOON - 7199))


# -- what is set aside for requests on their way


def test_of_fifty_at_once_no_more_come_in_than_there_is_left_for_and_the_rest_when_those_are_over() -> None:
    allowances, of = Allowances(), rights(tokens_per_day=1000)
    verdicts = [allowances.admit(of, NOON, 300) for _ in range(50)]
    assert [one for one in verdicts if is_in(one)] == [300, 300, 300, 100], "the last one has what is left"
    denied = refused(verdicts[-1])
    assert (denied.status, denied.code, denied.again, denied.retry_after_s) == (429, "rate_limit_exceeded", True, 2)
    assert "a day is set aside" in denied.message
    for aside in (300, 300, 300, 100):
        allowances.settle("ci", aside, 7, NOON + 1)
    assert allowances.admit(of, NOON + 2, 300) == 300
    assert dict(allowances.kept(NOON)["tokens"]["ci"]["days"])[str(int(NOON // DAY))] == [5, 28]


def test_what_is_set_aside_is_used_up_in_the_minute_and_in_what_is_said_of_it() -> None:
    allowances, of = Allowances(), rights(tokens_per_minute=100, tokens_per_day=1000)
    assert allowances.admit(of, NOON, 60) == 60
    assert dict(allowances.headers(of, NOON))[b"x-ratelimit-remaining-tokens"] == b"40"
    assert allowances.admit(of, NOON, 60) == 40
    assert "a minute is set aside" in refused(allowances.admit(of, NOON + 500, 1)).message, "however long they take"
    allowances.settle("ci", 40, 200, NOON + 500)
    assert "has used its 100 model tokens a minute" in refused(allowances.admit(of, NOON + 500, 1)).message
    assert allowances.admit(of, NOON + 561, 1) == 1


def test_without_a_limit_nobody_waits_for_anybody_and_a_later_limit_knows_who_is_on_the_way() -> None:
    allowances = Allowances()
    assert [allowances.admit(rights(), NOON, 10**6) for _ in range(3)] == [10**6] * 3
    assert not is_in(allowances.admit(rights(tokens_per_day=2 * 10**6), NOON, 1))
    assert allowances.admit(rights(tokens_per_day=4 * 10**6), NOON, 5 * 10**6) == 10**6


def test_what_is_set_aside_does_not_outlive_a_restart() -> None:
    allowances, of = Allowances(), rights(tokens_per_day=100)
    assert allowances.admit(of, NOON, 100) == 100
    later = Allowances()
    later.restore(json.loads(json.dumps(allowances.kept(NOON))), NOON)
    assert later.admit(of, NOON, 100) == 100


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 400), st.integers(0, 400), st.floats(0, 5)), max_size=120))
def test_a_limit_is_exceeded_only_by_what_was_not_expected(steps: list[tuple[bool, int, int, float]]) -> None:
    allowances, of, now, used = Allowances(), rights(tokens_per_day=1000), NOON, 0
    on_their_way: list[tuple[int, int]] = []
    beyond = 0
    for comes, expected, cost, later in steps:
        now += later
        if comes:
            aside = allowances.admit(of, now, expected)
            if not isinstance(aside, Denied):
                assert used < 1000
                on_their_way.append((aside, cost))
        elif on_their_way:
            aside, spent = on_their_way.pop(0)
            allowances.settle("ci", aside, spent, now)
            used, beyond = used + spent, beyond + max(0, spent - aside)
        assert used + sum(aside for aside, _ in on_their_way) <= 1000 + beyond
    for aside, cost in on_their_way:
        allowances.settle("ci", aside, cost, now)
        used += cost
    assert is_in(allowances.admit(of, now, 1)) is (used < 1000), "nothing is left aside for ever"


def test_rights_are_ids_of_the_list_and_an_alias_stands_for_its_model() -> None:
    everything, one, adapter = rights(), rights(models=("default",)), rights(models=("sql",))
    assert grantable(everything, ["assistant", "sql"], id_of) == ["assistant", "sql"]
    assert grantable(one, ["assistant", "default", "sql"], id_of) == ["assistant", "default"]
    assert grantable(adapter, ["assistant", "default", "sql"], id_of) == ["sql"]
    assert allows(everything, "assistant", id_of, NOON) is None
    assert allows(one, "assistant", id_of, NOON) is None
    denied = refused(allows(one, "sql", id_of, NOON))
    assert (denied.status, denied.code, denied.param) == (403, "model_not_allowed", "model")
    assert "tenure token set ci --models default,sql" in denied.message


def test_one_that_is_over_or_for_jobs_only_opens_nothing() -> None:
    over = rights(expires_at=NOON)
    assert opens(over, NOON - 1) is None
    assert refused(opens(over, NOON)).status == 401
    assert "tenure token set ci --expires" in refused(opens(over, NOON)).message
    jobs = Rights(name="ci", scopes=frozenset({"jobs"}))
    assert refused(opens(jobs, NOON)).status == 403
    assert refused(allows(jobs, "assistant", id_of, NOON)).status == 403


def test_a_token_that_nobody_uses_any_more_is_forgotten() -> None:
    """A new one for each build of a year is no burden on the file that is written five times a second."""
    allowances = Allowances()
    for day in range(365):
        name = f"build-{day}"
        aside = allowances.admit(Rights(name=name), NOON + day * DAY)
        assert is_in(aside)
        allowances.settle(name, 0, 10, NOON + day * DAY)
        assert len(allowances.kept(NOON + day * DAY)["tokens"]) <= 4
    busy = allowances.admit(rights(tokens_per_day=100), NOON + 365 * DAY, 50)
    assert busy == 50
    assert "ci" in allowances.kept(NOON + 400 * DAY)["tokens"], "its request is on its way"
