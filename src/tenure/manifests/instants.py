"""Points in time as people write them: Slurm's `--begin` grammar and ISO 8601.  `now` is an argument."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

from tenure.domain.ids import Instant

__all__ = ["parse_instant"]

_UNITS = {"second": 1, "sec": 1, "minute": 60, "min": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_NAMED = {"midnight": (0, 0, 0), "noon": (12, 0, 0), "fika": (15, 0, 0), "teatime": (16, 0, 0)}
_PLUS = re.compile(r"now\s*(?:\+\s*(\d{1,9})\s*([a-z]*))?", re.ASCII | re.IGNORECASE)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*(am|pm)?", re.ASCII | re.IGNORECASE)
_DATES = (
    re.compile(r"(?P<y>\d{4})-(?P<m>\d{1,2})-(?P<d>\d{1,2})", re.ASCII),
    re.compile(r"(?P<m>\d{1,2})(?P<sep>[/.])(?P<d>\d{1,2})(?:(?P=sep)(?P<y>\d{2}|\d{4}))?", re.ASCII),
    re.compile(r"(?P<m>\d{2})(?P<d>\d{2})(?P<y>\d{2})?", re.ASCII),
)
_DAY_FIRST = (re.compile(r"(\S+)T(\d.*)"), re.compile(r"([\d/.]+)-(\d+:.*)"), re.compile(r"(\S+)\s+(.+)"))
_CLOCK_FIRST = re.compile(r"(.+)\s+(\S+)")
_WOULD_WORK = "write now+1hour, 16:00, tomorrow, 2026-12-01T08:30 or 2026-12-01"


def parse_instant(text: str, now: Instant, zone: tzinfo | None = None) -> Instant:
    """The instant that `text` names; a clock time without a date, or a date without a year, is the next such one.

    Times without an offset are in `zone` (None = this machine's).  A moment in the past is allowed: it has come.
    Raises ValueError with what would work.
    """
    raw = text.strip()
    try:
        return _parse(raw, now, zone)
    except (OverflowError, OSError):
        raise ValueError(f"{raw[:40]!r} lies outside the calendar; {_WOULD_WORK}") from None


def _parse(raw: str, now: Instant, zone: tzinfo | None) -> Instant:
    if match := _PLUS.fullmatch(raw):
        count, unit = int(match[1] or 0), match[2].lower().removesuffix("s") if match[2] else "second"
        if unit not in _UNITS:
            raise ValueError(f"{match[2]!r} is not a unit of time; seconds, minutes, hours, days and weeks are")
        return Instant(now + count * _UNITS[unit] * 1_000_000)
    if re.match(r"\d{4}-\d\d-\d\d[T ].*(?:Z|[+-]\d\d:?\d\d)$", raw):
        try:
            return _instant(datetime.fromisoformat(raw))
        except ValueError:
            raise _not_understood(raw) from None
    if raw.lower() == "today":
        return now
    here = datetime.fromtimestamp(now / 1_000_000, UTC).astimezone(zone)
    for day_text, clock_text in _parts(raw) if raw else ():
        clock = _clock(clock_text) if clock_text else (0, 0, 0)
        if clock is not None and not day_text:
            return _next(here, clock, zone)
        days = _days(day_text, here)
        if clock is not None and days:
            moments = [_at(day, clock, zone) for day in days]
            return next((at for at in moments if at > now), moments[-1])
    raise _not_understood(raw)


def _parts(raw: str) -> Iterator[tuple[str, str]]:
    """The ways to take it apart into a day and a time of day, in either order; either may be missing."""
    yield "", raw
    yield raw, ""
    for cut in _DAY_FIRST:
        if match := cut.fullmatch(raw):
            yield match[1], match[2]
    if match := _CLOCK_FIRST.fullmatch(raw):
        yield match[2], match[1]


def _not_understood(raw: str) -> ValueError:
    return ValueError(f"{raw[:40]!r} is not a time; {_WOULD_WORK}")


def _clock(text: str) -> tuple[int, int, int] | None:
    if text.lower() in _NAMED:
        return _NAMED[text.lower()]
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        return None
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if match[4]:
        if not 1 <= hour <= 12:
            raise _not_understood(text)
        hour = hour % 12 + (12 if match[4].lower() == "pm" else 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text[:40]!r} is no time of day; 00:00 to 23:59:59 are")
    return hour, minute, second


def _days(text: str, here: datetime) -> list[datetime]:
    """The days that it may mean, the first first: one without a year is of this year or of the next."""
    if text.lower() == "today":
        return [here]
    if text.lower() == "tomorrow":
        return [here + timedelta(days=1)]
    for pattern in _DATES:
        if match := pattern.fullmatch(text):
            year = match["y"]
            years = [here.year, here.year + 1] if year is None else [int(year) + (2000 if len(year) == 2 else 0)]
            found = [day for year in years if (day := _day(here, year, int(match["m"]), int(match["d"]))) is not None]
            if not found:
                raise ValueError(f"{text[:40]!r} is no day of the calendar; {_WOULD_WORK}")
            return found
    return []


def _day(here: datetime, year: int, month: int, day: int) -> datetime | None:
    try:
        return here.replace(year=year, month=month, day=day)
    except ValueError:
        return None


def _at(day: datetime, clock: tuple[int, int, int], zone: tzinfo | None) -> Instant:
    """That time of that day in `zone`, whatever its offset is on that day."""
    naive = datetime(day.year, day.month, day.day, *clock)  # noqa: DTZ001  (the zone follows)
    return _instant(naive.astimezone() if zone is None else naive.replace(tzinfo=zone))


def _next(here: datetime, clock: tuple[int, int, int], zone: tzinfo | None) -> Instant:
    today = _at(here, clock, zone)
    return today if today > _instant(here) else _at(here + timedelta(days=1), clock, zone)


def _instant(moment: datetime) -> Instant:
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return Instant((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
