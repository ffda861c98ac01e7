"""The drawing of advice: whatever is recommended, its words stay on the sheet."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from tenure.cli.advice_plot import WIDTH, drawing

WINDOWS = {"1m": 60.0, "1h30m": 5400.0, "24h": 86_400.0}


def answer(chosen: str | None, now: str, windows: dict[str, float]) -> dict[str, Any]:
    rows = [
        {"idle_after": name, "idle_after_s": seconds, "now": name == now, "share_hours_per_day": 3.0, "waited_s_per_day": 30.0}
        for name, seconds in {**windows, "resident": None}.items()
    ]  # fmt: skip
    recommended = {"idle_after_s": windows[chosen]} if chosen else None
    about = {"model": "assistant", "requests": 40, "until": "2026-11-30T02:18:56Z", "reason": "it costs least"}
    return about | {"rows": rows, "recommended": recommended}


@pytest.mark.parametrize("chosen", [*WINDOWS, None])
@pytest.mark.parametrize("now", [*WINDOWS, "resident"])
@pytest.mark.parametrize("known", [WINDOWS, {name: WINDOWS[name] for name in ("1h30m", "24h")}], ids=["three", "two"])
def test_no_words_leave_the_sheet(chosen: str | None, now: str, known: dict[str, float]) -> None:
    if chosen not in known:
        chosen = None
    texts = ElementTree.fromstring(drawing(answer(chosen, now, known))).findall("{*}text")
    assert any("recommended" in str(text.text) for text in texts) == (chosen is not None)
    for text in texts:
        width = len(str(text.text)) * (9 if text.get("class") == "title" else 7)  # wider than any letter that is usual
        left = float(text.get("x", "nan")) - {"middle": width / 2, "end": width}.get(text.get("text-anchor", ""), 0)
        assert left >= 0, (text.text, left)
        assert left + width <= WIDTH, (text.text, left + width)
