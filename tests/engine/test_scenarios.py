"""Golden stories: a file each, whose name is the sentence and whose `why` is the rule."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tenure.testing.lab import Story

_STORIES = sorted((Path(__file__).parent / "scenarios").glob("*.toml"))


@pytest.mark.parametrize("path", _STORIES, ids=[p.stem for p in _STORIES])
def test_story(path: Path) -> None:
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    assert raw["why"]
    Story(raw).play()


def test_a_story_that_goes_another_way_is_seen() -> None:
    raw = tomllib.loads(next(p for p in _STORIES if p.stem == "one-model-at-a-time").read_text(encoding="utf-8"))
    raw["steps"][-1]["admits"] = ["other"]
    with pytest.raises(AssertionError, match=r"admits \['other'\] expected, \['small'\] decided"):
        Story(raw).play()
