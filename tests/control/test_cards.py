"""Which cards a platform has: declared ones are remembered, and a home that is only looked at is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.control import cards


def test_what_was_declared_is_known_again_and_written_only_when_it_is_new(tmp_path: Path) -> None:
    file = tmp_path / "cards.json"
    assert [card.shares for card in cards.find(["2x4x8Gi"], file).cards] == [4, 4]
    written = file.stat()
    assert cards.find([], file).cards == cards.find(["2x4x8Gi"], file).cards
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    assert [card.shares for card in cards.find(["8x8Gi"], file).cards] == [8]
    assert [card.shares for card in cards.find([], file).cards] == [8]
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"declared": 5}', '{"declared": null}', "\x00"])
def test_a_file_that_is_damaged_declares_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cards.json"
    file.write_text(text)
    assert cards.find([], file).source != "declared"
    assert cards.find(["1x1Gi"], file).source == "declared"
    assert cards.find([], file).source == "declared"
