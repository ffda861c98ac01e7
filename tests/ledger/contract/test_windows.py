"""Claims of whole cards: guarded, told in the diary, and never two that hold one card."""

from __future__ import annotations

import pytest

from tenure.domain.errors import HouseFault, NotFound, StaleWrite, TenureError
from tenure.domain.events import EventKind
from tenure.domain.ids import CardId, Instant
from tenure.domain.window import WindowState
from tenure.ledger import Ledger, WindowRow, fold

T = Instant(1_790_000_000_000_000)
CARD = CardId("declared-0")


def claim(ledger: Ledger, owner: str = "ann", state: WindowState = WindowState.WAITING) -> WindowRow:
    with ledger.transaction() as tx:
        return tx.claim_window(card=CARD, owner=owner, state=state, length_us=7, at=T, message=f"{owner} ü claims")


def become(ledger: Ledger, row: WindowRow, state: WindowState, **fields: object) -> WindowRow:
    kind = {"active": EventKind.WINDOW_OPENED, "waiting": EventKind.WINDOW_DUE}.get(state, EventKind.WINDOW_ENDED)
    with ledger.transaction() as tx:
        return tx.change_window(row, kind, T, message=f"is {state}", fields={"state": state, **fields})


def test_a_window_from_claim_to_end_and_its_diary(ledger: Ledger) -> None:
    first, second = claim(ledger, state=WindowState.SCHEDULED), claim(ledger, "bob")
    assert ledger.live_windows() == [first, second]
    first = become(ledger, first, WindowState.WAITING)
    first = become(ledger, first, WindowState.ACTIVE, opened_at=T, ends_at=T + 7)
    assert ledger.window(first.id) == first
    first = become(ledger, first, WindowState.ENDED, ended_at=T + 7, reason="Lapsed")
    assert ledger.live_windows() == [second]
    assert ledger.windows() == [second, first]
    folded = fold(ledger.events())
    assert dict(folded.windows) == {first.id: first, second.id: second}
    assert (dict(folded.jobs), dict(folded.attempts)) == ({}, {})
    with pytest.raises(NotFound):
        ledger.window("w99")


def test_the_database_itself_lets_one_window_hold_a_card(ledger: Ledger) -> None:
    first, second = claim(ledger), claim(ledger, "bob")
    become(ledger, first, WindowState.ACTIVE)
    with pytest.raises(TenureError):
        become(ledger, second, WindowState.ACTIVE)
    assert ledger.window(second.id) == second


def test_a_stale_or_senseless_change_changes_nothing(ledger: Ledger) -> None:
    seen = claim(ledger)
    held = become(ledger, seen, WindowState.ACTIVE)
    with pytest.raises(StaleWrite):
        become(ledger, seen, WindowState.ENDED)
    with pytest.raises(HouseFault):
        become(ledger, held, WindowState.WAITING)
    with pytest.raises(HouseFault):
        become(ledger, held, WindowState.ENDED, owner="eve")
    assert ledger.window(seen.id) == held
