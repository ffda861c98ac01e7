"""Times, instants and arrays, in the spellings that people's fingers know."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.domain.ids import Instant
from tenure.domain.job import ArraySpec
from tenure.manifests.array import format_indices, parse_array
from tenure.manifests.durations import format_duration, parse_duration, parse_go_duration, parse_slurm_time
from tenure.manifests.instants import parse_instant

DAY = 86_400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90 * 60), ("1:30", 90), ("01:00:00", 3600), ("2-0", 2 * DAY), ("1-12", DAY + 12 * 3600), ("1-00:30", DAY + 1800),
        ("1-02:03:04", DAY + 2 * 3600 + 3 * 60 + 4), ("0", None), ("00:00", None), ("UNLIMITED", None), ("infinite", None), ("100:00:00", 360_000),
    ],
)  # fmt: skip
def test_slurms_forms_of_time(text: str, seconds: float | None):
    assert parse_slurm_time(text) == seconds
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h30m", 9000), ("90s", 90), ("7d", 7 * DAY), ("1.5h", 5400), ("1w", 7 * DAY), ("2 hours", 7200), ("1d 6h", DAY + 21600), ("10min", 600), ("0s", 0)],
)  # fmt: skip
def test_times_with_units(text: str, seconds: float):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", " ", "x", "1:2:3:4", "-5", "5x", "1h1h", "h", "1-", "1::2", "９０", "1e9999999h", "999999d", "2h30"]
)
def test_what_is_no_time_is_refused_with_what_would_work(text: str):
    with pytest.raises(ValueError, match="write "):
        parse_duration(text)


@pytest.mark.parametrize(("text", "seconds"), [("5m0s", 300), ("1h30m", 5400), ("300ms", 0.3), ("0", 0), (".5s", 0.5)])
def test_gos_durations(text: str, seconds: float):
    assert parse_go_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "soon", "-5s", "5m 0s", "1d"])
def test_what_is_no_go_duration_is_refused(text: str):
    with pytest.raises(ValueError, match="30s, 5m or 1h30m"):
        parse_go_duration(text)


@given(st.just(0.0) | st.floats(1e-6, 1e9))
def test_a_duration_reads_back(seconds: float):
    assert parse_go_duration(format_duration(seconds)) == seconds


# arrays


@pytest.mark.parametrize(
    ("text", "indices", "limit"),
    [
        ("1-3", (1, 2, 3), None),
        ("1-10%3", tuple(range(1, 11)), 3),
        ("0,2,4-8:2", (0, 2, 4, 6, 8), None),
        ("7", (7,), None),
        ("3,1-2,2", (1, 2, 3), None),
        ("0-5:4", (0, 4), None),
        ("99999", (99999,), None),
    ],
)
def test_arrays(text: str, indices: tuple[int, ...], limit: int | None):
    assert parse_array(text) == ArraySpec(indices=indices, limit=limit)


@pytest.mark.parametrize(
    "text",
    ["", ",", "1-", "-1", "3-1", "1-5:0", "1%0", "1%", "1%x", "100000", "0-999999999999999999", "a", "1;2", "1-3%2%2"],
)
def test_what_is_no_array_is_refused(text: str):
    with pytest.raises(ValueError, match=r"write|at (least|most)"):
        parse_array(text)


def test_an_array_that_names_its_indices_again_and_again_is_not_read_for_hours():
    with pytest.raises(ValueError, match="name each once"):
        parse_array(",".join(["0-99999"] * 100_000))


@given(st.sets(st.integers(0, 300), min_size=1))
def test_indices_read_back(indices: set[int]):
    ordered = tuple(sorted(indices))
    assert parse_array(format_indices(ordered)).indices == ordered


# instants

BERLIN = ZoneInfo("Europe/Berlin")


def at(*parts: int, zone=UTC) -> Instant:
    moment = datetime(*parts, tzinfo=zone)
    return Instant(int(moment.timestamp()) * 1_000_000)


NOW = at(2026, 11, 29, 14, 30)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", NOW), ("now+1hour", at(2026, 11, 29, 15, 30)), ("now + 90", at(2026, 11, 29, 14, 31, 30)), ("now+2days", at(2026, 12, 1, 14, 30)),
        ("now+1week", at(2026, 12, 6, 14, 30)), ("16:00", at(2026, 11, 29, 16)), ("14:30", at(2026, 11, 30, 14, 30)), ("02:15:10", at(2026, 11, 30, 2, 15, 10)),
        ("4pm", None), ("4:00pm", at(2026, 11, 29, 16)), ("12:00am", at(2026, 11, 30)), ("midnight", at(2026, 11, 30)), ("noon", at(2026, 11, 30, 12)),
        ("teatime", at(2026, 11, 29, 16)), ("fika", at(2026, 11, 29, 15)), ("today", NOW), ("tomorrow", at(2026, 11, 30)), ("2026-12-01", at(2026, 12, 1)),
        ("2026-12-01T08:30", at(2026, 12, 1, 8, 30)), ("2026-12-01 08:30:05", at(2026, 12, 1, 8, 30, 5)), ("12/01/26", at(2026, 12, 1)), ("120126", at(2026, 12, 1)),
        ("12/01", at(2026, 12, 1)), ("tomorrow 08:00", at(2026, 11, 30, 8)), ("2026-12-01T08:30:00Z", at(2026, 12, 1, 8, 30)),
        ("01/15", at(2027, 1, 15)), ("11/29", at(2027, 11, 29)), ("11/29T15:00", at(2026, 11, 29, 15)), ("0115", at(2027, 1, 15)),
        ("1.15", at(2027, 1, 15)), ("01.15.27", at(2027, 1, 15)), ("01/15-10:30", at(2027, 1, 15, 10, 30)), ("16:00 12/25", at(2026, 12, 25, 16)),
        ("4:30 PM tomorrow", at(2026, 11, 30, 16, 30)), ("tomorrow noon", at(2026, 11, 30, 12)), ("01/15/26", at(2026, 1, 15)),
        ("2026-12-01T08:30:00.250000+01:00", Instant(at(2026, 12, 1, 7, 30) + 250_000)), ("2020-01-01", at(2020, 1, 1)),
    ],
)  # fmt: skip
def test_instants(text: str, moment: Instant | None):
    if moment is None:
        with pytest.raises(ValueError, match="write now"):
            parse_instant(text, NOW, UTC)
    else:
        assert parse_instant(text, NOW, UTC) == moment


def test_a_day_without_a_year_that_only_leap_years_have():
    assert parse_instant("02/29", at(2027, 3, 1), UTC) == at(2028, 2, 29)
    with pytest.raises(ValueError, match="no day of the calendar"):
        parse_instant("02/29", at(2026, 3, 1), UTC)


def test_clock_times_are_in_the_zone_and_follow_its_summer_time():
    assert parse_instant("16:00", NOW, BERLIN) == at(2026, 11, 29, 15)  # winter: UTC+1
    assert parse_instant("2026-07-01T16:00", NOW, BERLIN) == at(2026, 7, 1, 14)  # summer: UTC+2
    east = timezone(timedelta(hours=14))
    assert parse_instant("tomorrow", NOW, east) == at(2026, 12, 1, zone=east)  # there it is the 30th already


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "25:00",
        "12:60",
        "2026-02-30",
        "now+1fortnight",
        "13:00pm",
        "2026-13-01T00:00:00Z",
        "99/99/99",
        "now+999999999weeks x",
    ],
)
def test_what_is_no_instant_is_refused(text: str):
    with pytest.raises(ValueError, match=r"write|are"):
        parse_instant(text, NOW, UTC)


@given(st.text(max_size=30))
def test_any_text_is_understood_or_a_value_error(text: str):
    for parse in (
        lambda t: parse_instant(t, NOW, UTC),
        parse_duration,
        parse_slurm_time,
        parse_go_duration,
        parse_array,
    ):
        with contextlib.suppress(ValueError):
            parse(text)
