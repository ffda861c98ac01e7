"""`tenure models advise NAME`: the table, its two curves beside the numbers, and what is recommended; nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from .call import Call
from .grammar import Usage
from .render import emit, note, plain, span
from .times import seconds_of

__all__ = ["advise", "lines"]

BAR = 17
FULL, LIGHT = "█", "▒"  # told apart without colour


def advise(call: Call, name: str) -> int:
    parsed = call.parsed
    query: dict[str, object] = {
        "days": _number(parsed.text("days"), "--days"),
        "second_is_worth": _number(parsed.text("second-of-waiting-is-worth"), "--second-of-waiting-is-worth"),
    }
    if (windows := parsed.text("windows")) is not None:
        query["windows_s"] = [seconds_of(word.strip(), flag="--windows") for word in windows.split(",")]
    path = f"/models/{quote(name, safe='')}/advice"
    answer = call.client.call("GET", path, query=query, timeout_s=120)
    plot = parsed.text("plot")
    if plot is not None:
        from .advice_plot import drawing

        try:
            Path(plot).write_text(drawing(answer), "utf-8")
        except OSError as error:
            raise Usage(f"--plot {plot}: {(error.strerror or str(error)).lower()}") from None
        note(f"drawn to {plot}")
    if call.structured:
        emit(answer, call.form)
    elif call.form == "name":
        print((answer["recommended"] or {}).get("spec", ""))
    else:
        print("\n".join(lines(answer)))
    return 0


LEAST_DAYS = 1 / 24
"""Of watching, below which nothing is counted up to a day for a person; for a program it is."""


def lines(answer: dict[str, Any]) -> list[str]:
    """Within 80 columns: what was looked at, a row a window with its bars, and the recommendation."""
    rows = answer["rows"]
    most_held = max(row["share_hours_per_day"] for row in rows)
    most_waited = max(row["waited_s_per_day"] or 0.0 for row in rows)
    chosen = (answer["recommended"] or {}).get("idle_after_s")
    shown = [
        f"{plain(answer['model'])}: {answer['requests']} requests in {span(answer['days'] * 86_400)}, until {answer['until'][:16]}Z",
        *_wrapped(_wakes(answer["wake"])),
    ]
    if answer["days"] < LEAST_DAYS:  # one wake in two seconds is no forty thousand a day
        return [*shown, "", *_sentence(answer)]
    shown += [
        "",
        f"  {'IDLE':>8}  {'WAKES':>6}  {'SHARE-H':>7} {'HELD ' + FULL:<{BAR}}  {'SECONDS':>7} {'WAITED ' + LIGHT:<{BAR}}  {'EACH':>5}".rstrip(),
    ]  # fmt: skip
    for row in rows:
        mark = ">" if chosen is not None and row["idle_after_s"] == chosen else "*" if row["now"] else " "
        waited = row["waited_s_per_day"]
        shown.append(
            f"{mark} {row['idle_after']:>8}  {row['wakes_per_day']:>6.1f}  {row['share_hours_per_day']:>7.2f} "
            f"{_bar(row['share_hours_per_day'], most_held, FULL):<{BAR}}  {_seconds(waited):>7} "
            f"{_bar(waited or 0.0, most_waited, LIGHT):<{BAR}}  {_seconds(row['waited_s_per_cold_call']):>5}".rstrip()
        )
    kept = any(row["now"] and row["idle_after_s"] == chosen for row in rows)
    marks = (
        ["> recommended, and as it is now"]
        if kept
        else (["> recommended"] if chosen is not None else []) + ["* as it is now"]
    )
    shown += ["", f"by the day; {', '.join(marks)}", *_sentence(answer)]
    return shown


def _wakes(wake: dict[str, Any]) -> str:
    if not wake["count"]:
        return f"how long a wake takes is not known: {wake['basis']}"
    return f"a wake takes {wake['p50_s']:.1f} s, one in ten {wake['p90_s']:.1f} s or more ({wake['basis']})"


def _sentence(answer: dict[str, Any]) -> list[str]:
    said = _wrapped(f"{plain(answer['reason'])}.")
    found = answer["recommended"]
    return [*said, "", f"{found['spec']}   # nothing has been changed"] if found else said


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 80)


def _bar(value: float, most: float, ink: str) -> str:
    """Anything above nothing is at least one mark."""
    if most <= 0 or value <= 0:
        return ""
    return ink * max(1, round(value / most * BAR))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _number(text: str | None, flag: str) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9 or (flag == "--days" and not 0 < value <= 366):
        raise Usage(
            f"{flag} takes a number{', more than 0 and at most 366' if flag == '--days' else ' that is not below 0'}, not {text!r}"
        )
    return value
