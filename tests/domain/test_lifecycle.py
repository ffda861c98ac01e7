"""The table is the law: it has no dead ends, its page is drawn from it, and errors name what is legal."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tenure.domain.errors import IllegalTransition
from tenure.domain.lifecycle import HOLDS_QUOTA, TERMINAL, TRANSITIONS, JobEvent, JobState, legal_events, next_state
from tenure.testing.lifecycle_page import page

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_drawn_from_the_table():
    assert (DOCS / "lifecycle.md").read_text() == page()


def test_every_state_can_reach_the_end():
    reach = set(TERMINAL)
    while True:
        more = {state for (state, _), after in TRANSITIONS.items() if after in reach} - reach
        if not more:
            break
        reach |= more
    assert reach == set(JobState)


def test_every_event_is_used_and_a_cancel_is_legal_wherever_something_lives():
    assert {event for _, event in TRANSITIONS} == set(JobEvent)
    for state in set(JobState) - TERMINAL - {JobState.CANCELLING}:
        assert (state, JobEvent.CANCEL) in TRANSITIONS


def test_quota_is_given_back_only_by_leaving():
    """Law 6: a victim's quota is free when it has left, not when it was chosen."""
    for (state, event), after in TRANSITIONS.items():
        if state in HOLDS_QUOTA and after not in HOLDS_QUOTA:
            assert event in {
                JobEvent.RELEASE,
                JobEvent.REQUEUE,
                JobEvent.FINISH,
                JobEvent.FAIL_LAUNCH,
                JobEvent.GIVE_UP,
            }


@pytest.mark.parametrize(("state", "event"), list(product(JobState, JobEvent)))
def test_next_state_is_the_table_and_refusals_say_what_is_legal(state: JobState, event: JobEvent):
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) is TRANSITIONS[state, event]
        return
    with pytest.raises(IllegalTransition) as refusal:
        next_state(state, event)
    assert all(legal in refusal.value.message for legal in legal_events(state))
    if state in TERMINAL:
        assert "it has ended" in refusal.value.message
