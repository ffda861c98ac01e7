"""The policy directory of a home: its default is written whole or not at all, and nobody's own words are written over."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tenure.control.policies import ensure_default, read
from tenure.domain.ids import CardId
from tenure.domain.workload import Card

CARDS = [Card(id=CardId("declared-0"), index=0, flavor="declared-card", shares=8, memory=16 << 30)]


def test_the_default_follows_the_cards_until_somebody_edits_it(tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    assert ensure_default(folder, [])
    assert ensure_default(folder, CARDS)
    assert not ensure_default(folder, CARDS), "it is there"
    assert "declared-card" in (folder / "10-flavors.yaml").read_text()
    queues = folder / "30-queues.yaml"
    queues.write_text(queues.read_text() + "# mine\n")
    assert not ensure_default(folder, [])
    assert "declared-card" in (folder / "10-flavors.yaml").read_text()
    assert read(folder).problems == ()


@pytest.mark.parametrize("before", [False, True], ids=["first", "older"])
def test_where_there_is_no_room_for_all_of_it_nothing_is_changed(tmp_path: Path, before: bool) -> None:
    folder = tmp_path / "policy"
    if before:
        ensure_default(folder, [])
    there = {path.name: path.read_bytes() for path in folder.glob("*")}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # as a full disk, for this process alone
    try:
        with pytest.raises(OSError, match="too large"):
            ensure_default(folder, CARDS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_bytes() for path in folder.glob("*")} == there
    assert ensure_default(folder, CARDS)
    assert "declared-card" in (folder / "10-flavors.yaml").read_text()
    assert read(folder).current.local_queues
