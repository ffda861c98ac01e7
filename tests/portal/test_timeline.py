"""The drawing of a card: every holding has as many lanes as shares, no two at once in one, and none is left out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenure.portal.pages.timeline import lanes, segments, ticks

BEGIN = datetime(2026, 11, 29, 21, 0, tzinfo=UTC)
END = BEGIN + timedelta(hours=1)


def holding(job: str, first: float, last: float | None, shares: int, taken_by: str | None = None) -> dict[str, Any]:
    at = [BEGIN + timedelta(minutes=minutes) for minutes in (first, last or 0)]
    return {
        "job_id": job, "name": f"job {job}", "shares": shares, "from": at[0].isoformat(),
        "to": at[1].isoformat() if last is not None else None, "outcome": "interrupted" if taken_by else None, "ended_by": taken_by,
    }  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """What one card of eight shares can have seen: never more than eight at once."""
    found: list[dict[str, Any]] = []
    busy: list[tuple[float, int]] = []
    now = 0.0
    for number in range(draw(st.integers(0, 25))):
        now += draw(st.floats(0.1, 5))
        busy = [(until, shares) for until, shares in busy if until > now]
        free = 8 - sum(shares for _, shares in busy)
        if free and now < 60:
            shares, until = draw(st.integers(1, free)), now + draw(st.floats(0.1, 30))
            busy.append((until, shares))
            found.append(holding(str(number), now, until if until < 60 else None, shares))
    return found


@given(histories())
def test_nobody_is_drawn_over_anybody_and_everybody_has_their_lanes(history: list[dict[str, Any]]) -> None:
    blocks = lanes(history, shares=8, since=BEGIN, until=END)
    for one in history:
        mine = [block for block in blocks if block.job_id == one["job_id"]]
        assert sum(block.height for block in mine) == one["shares"]
        assert all(block.lane >= 0 and block.lane + block.height <= 8 for block in mine)
        assert all(0 <= block.left <= 1 for block in mine)
    for index, a in enumerate(blocks):
        for b in blocks[index + 1 :]:
            apart = a.left + a.width <= b.left + 0.002 or b.left + b.width <= a.left + 0.002
            assert apart or a.lane + a.height <= b.lane or b.lane + b.height <= a.lane


def test_who_was_taken_and_by_whom_is_said() -> None:
    first, second = lanes([holding("1", 10, 20, 5, "2"), holding("2", 20, None, 6)], shares=8, since=BEGIN, until=END)
    assert (first.taken, first.held, second.taken, second.held) == (True, False, False, True)
    assert "taken by 2" in first.says
    assert (first.left, first.lane, first.height) == (10 / 60, 0, 5)
    assert abs(second.left + second.width - 1) < 1e-9


def test_what_ended_before_the_picture_is_not_in_it_and_what_began_before_is_cut() -> None:
    old, cut = holding("1", -30, -10, 8), holding("2", -5, 30, 2)
    (block,) = lanes([old, cut], shares=8, since=BEGIN, until=END)
    assert (block.job_id, block.left, block.width) == ("2", 0.0, 0.5)


def test_times_that_overlap_by_a_clock_s_whim_still_have_lanes() -> None:
    blocks = lanes([holding("1", 0, 20, 8), holding("2", 19.99, 30, 8)], shares=8, since=BEGIN, until=END)
    assert [block.height for block in blocks] == [8, 8]


def test_ticks_are_round_and_few() -> None:
    for hours in (0.02, 0.25, 1, 6, 24, 168):
        marks = ticks(END - timedelta(hours=hours), END)
        assert len(marks) <= 8
        assert all(0 <= at <= 1 for at, _ in marks)
    assert [label for _, label in ticks(BEGIN, END)] == ["21:10", "21:20", "21:30", "21:40", "21:50", "22:00"]


def test_a_life_is_its_states_in_order() -> None:
    def event(kind: str, minute: int, state: str | None = None) -> dict[str, Any]:
        return {
            "kind": kind,
            "at": (BEGIN + timedelta(minutes=minute)).isoformat(),
            "changes": {"state": state} if state else {},
        }

    story = [event("JobSubmitted", 0), event("JobPending", 1), event("JobAdmitted", 2, "admitted"), event("JobStarted", 3, "running"), event("JobPreempted", 10, "evicting"), event("JobRequeued", 11, "queued"), event("JobStarted", 20, "running"), event("JobEnded", 30, "ended")]  # fmt: skip
    life = segments(story, until=END)
    assert [part.state for part in life] == ["queued", "admitted", "running", "evicting", "queued", "running"]
    assert abs(life[-1].left + life[-1].width - 1) < 1e-9
    assert segments([], until=END) == []
