"""Geometry for the drawings: who held which share of a card when, and which states a job went through.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["Band", "Block", "Segment", "bands", "lanes", "segments", "ticks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A rectangle: part of one holding that lies in neighbouring shares.  Fractions of the width, whole lanes."""

    job_id: str
    name: str
    left: float
    width: float
    lane: int
    height: int
    held: bool  # still there
    taken: bool  # it did not leave by itself
    says: str


def lanes(holdings: Sequence[Mapping[str, Any]], *, shares: int, since: datetime, until: datetime) -> list[Block]:
    """Give every holding its lanes: the lowest that are free when it begins, kept until it ends.

    A holder is drawn in one piece where the free lanes are neighbours and in several where they are not.  What holds no
    share (only memory) has no lane.
    """
    blocks: list[Block] = []
    free_at = [datetime.min.replace(tzinfo=since.tzinfo)] * shares
    total = max((until - since).total_seconds(), 1e-6)
    for holding in sorted(holdings, key=lambda item: (item["from"], str(item["job_id"]))):
        begin, end = datetime.fromisoformat(holding["from"]), holding["to"] and datetime.fromisoformat(holding["to"])
        open_lanes = [lane for lane in range(shares) if free_at[lane] <= begin]
        wanted = min(int(holding["shares"]), shares)
        if len(open_lanes) < wanted:  # times of different clocks may overlap a little: take what is free first
            open_lanes = sorted(range(shares), key=lambda lane: free_at[lane])
        chosen = sorted(_together(open_lanes, wanted))
        for lane in chosen:
            free_at[lane] = end or datetime.max.replace(tzinfo=since.tzinfo)
        if end is not None and end < since:
            continue
        left = max(0.0, (begin - since).total_seconds() / total)
        right = min(1.0, ((end or until) - since).total_seconds() / total)
        for lane, height in _runs(chosen):
            blocks.append(
                Block(
                    job_id=str(holding["job_id"]),
                    name=str(holding["name"]),
                    left=left,
                    width=max(right - left, 0.0015),
                    lane=lane,
                    height=height,
                    held=end is None,
                    taken=bool(holding.get("ended_by")) and end is not None,
                    says=_says(holding),
                )
            )
    return blocks


def _together(open_lanes: Sequence[int], wanted: int) -> list[int]:
    """The first run of neighbouring lanes that is long enough, or else the lowest lanes."""
    for start in range(len(open_lanes) - wanted + 1):
        run = list(open_lanes[start : start + wanted])
        if run and run[-1] - run[0] == wanted - 1:
            return run
    return list(open_lanes[:wanted])


def _runs(chosen: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for lane in chosen:
        if runs and runs[-1][0] + runs[-1][1] == lane:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((lane, 1))
    return runs


def _says(holding: Mapping[str, Any]) -> str:
    shares = int(holding["shares"])
    text = f"{holding['job_id']} {holding['name']}: {shares} share{'' if shares == 1 else 's'} from {holding['from'][11:19]}"
    if holding["to"]:
        text += f" to {holding['to'][11:19]}"
    if holding.get("outcome"):
        text += f", {holding['outcome']}"
    return text + (f", taken by {holding['ended_by']}" if holding.get("ended_by") else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A stretch of a whole card that a window held, as fractions of the width."""

    window: str
    owner: str
    left: float
    width: float
    active: bool
    ends_at: str
    says: str


def bands(held: Sequence[Mapping[str, Any]], *, since: datetime, until: datetime) -> list[Band]:
    """The windows of one card, oldest first; what ended before `since` is left out."""
    total = max((until - since).total_seconds(), 1e-6)
    found = []
    for window in held:
        begin, end = datetime.fromisoformat(window["from"]), window["to"] and datetime.fromisoformat(window["to"])
        if begin > until or (end is not None and end < since):
            continue
        left = max(0.0, (begin - since).total_seconds() / total)
        right = min(1.0, ((end or until) - since).total_seconds() / total)
        last = f"to {window['to'][11:19]} ({window['reason']})" if end else f"until {window['ends_at'][11:19]}"
        found.append(
            Band(
                window=str(window["window"]),
                owner=str(window["owner"]),
                left=left,
                width=max(right - left, 0.0015),
                active=end is None,
                ends_at=str(window["ends_at"]),
                says=f"window {window['window']} of {window['owner']}: from {window['from'][11:19]} {last}",
            )
        )
    return found


def ticks(since: datetime, until: datetime) -> list[tuple[float, str]]:
    """Round times along the axis, as fractions with their labels."""
    total = (until - since).total_seconds()
    step = next((s for s in (10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 14400, 21600) if total / s <= 7), 86400)
    first = (int(since.timestamp()) // step + 1) * step
    return [
        (
            (at - since.timestamp()) / total,
            datetime.fromtimestamp(at, since.tzinfo).strftime("%H:%M:%S" if step < 60 else "%H:%M"),
        )
        for at in range(first, int(until.timestamp()) + 1, step)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of a job's life in one state."""

    state: str
    begin: str
    end: str | None
    left: float
    width: float


def segments(events: Sequence[Mapping[str, Any]], *, until: datetime) -> list[Segment]:
    """The states that a job went through, from the fields its events set."""
    steps: list[tuple[str, str]] = []
    for event in events:
        state = (event.get("changes") or {}).get("state") or ("queued" if event["kind"] == "JobSubmitted" else None)
        if state and (not steps or steps[-1][0] != state):
            steps.append((str(state), str(event["at"])))
    if not steps:
        return []
    begin = datetime.fromisoformat(steps[0][1])
    end = datetime.fromisoformat(steps[-1][1]) if steps[-1][0] == "ended" else until
    total = max((end - begin).total_seconds(), 1e-6)
    found = []
    for index, (state, at) in enumerate(steps):
        if state == "ended":
            break
        following = steps[index + 1][1] if index + 1 < len(steps) else None
        left = (datetime.fromisoformat(at) - begin).total_seconds() / total
        right = ((datetime.fromisoformat(following) if following else end) - begin).total_seconds() / total
        found.append(Segment(state=state, begin=at, end=following, left=left, width=max(right - left, 0.002)))
    return found
