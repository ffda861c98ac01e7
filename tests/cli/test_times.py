"""Times of day are those of whoever types them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tenure.cli.times import moment_here

from .conftest import Home


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "UTC"])
def test_a_time_of_day_is_in_the_zone_of_the_shell_that_it_was_typed_in(home: Home, zone: str) -> None:
    """The daemon was started in another one."""
    wanted = (datetime.now(ZoneInfo(zone)) + timedelta(hours=2)).replace(second=0, microsecond=0)
    job = home.ok("submit", "--hold", "--begin", f"{wanted:%H:%M}", "--", "true", env={"TZ": zone}).strip()
    assert datetime.fromtimestamp(home.json("show", job)["spec"]["begin_at"] / 1e6, UTC) == wanted


@pytest.mark.parametrize("text", ["now+1hour", " now", "2026-12-01T08:30:00Z", "never", "", "25:00"])
def test_what_names_no_time_of_a_place_goes_to_the_platform_as_it_is(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert moment_here(text) == text
    monkeypatch.delenv("TZ")
    assert moment_here("16:00") == "16:00"
