"""`tenure why`: where a job is and why, who is in the way, and what would change it; on one screen."""

from __future__ import annotations

from typing import Any

from tenure.domain.amounts import format_quantity

from .call import Call
from .client import job_path
from .grammar import Verb
from .render import age, emit, moment, plain, span

VERB = Verb(
    usage="why ID",
    positionals=(1, 1),
    what="job id",
    examples=(("tenure why @", "the newest job"),),
)

HISTORY = 8  # lines of it; `-o json` has all
HOLDERS = 6


def run(call: Call) -> int:
    said = call.client.get(job_path(call.ids[0], "/why"))
    if call.structured:
        emit(said, call.form)
    elif call.form == "name":
        print(said["reason"] or said["state"])
    else:
        print("\n".join(lines(said)))
    return 0


def lines(said: dict[str, Any]) -> list[str]:
    place = f", number {said['position'] + 1} in its queue" if said.get("position") is not None else ""
    reason = f": {said['reason']}" if said.get("reason") else ""
    shown = [f"job {said['id']} is {said['state']}{place}{reason}"]
    if said.get("message"):
        shown.append(f"  {plain(said['message'])}")
    for blocker in said.get("blockers") or []:
        shown += _blocker(blocker)
    expected = said.get("expected_start")
    if expected:
        shown.append(
            f"expected start: {expected['p50']} (nine in ten by {expected['p90']}), from {plain(expected['basis'])}"
        )
    elif said.get("expected_start_reason"):
        shown.append(f"expected start: none, because {plain(said['expected_start_reason'])}")
    changes = said.get("counterfactuals") or []
    if changes:
        shown.append("what would change it:")
        shown += [f"  {plain(item['change'])}: {plain(item['effect'])}" for item in changes]
    shown += _story(said.get("phases") or [])
    # What an attempt says of itself doubles what the job's lines say; `-o json` has both.
    history = [event for event in said.get("history") or [] if not str(event.get("kind")).startswith("Attempt")]
    if history:
        shown.append("so far:" if len(history) <= HISTORY else f"so far (the last {HISTORY} of {len(history)}):")
        shown += [_event(event) for event in history[-HISTORY:]]
    return shown


def _story(phases: list[dict[str, Any]]) -> list[str]:
    """How long it waited for what, and ran; in one line, and a line for each time that its place was taken."""
    if len(phases) < 2:
        return []
    spent: dict[str, float] = {}
    for phase in phases:
        what = phase["phase"] + (f" ({phase['reason']})" if phase["reason"] else "")
        spent[what] = spent.get(what, 0.0) + phase["seconds"]
    told = [f"{what} {span(seconds)}" for what, seconds in spent.items() if seconds >= 1 or what == "ran"]
    shown = [f"in all: {plain(', '.join(told))}"] if told else []
    for phase in phases:
        if phase["rule"]:
            by = f" by {phase['taken_by']}" if phase["taken_by"] else ""
            lost = "" if phase["lost_s"] is None else f", {span(phase['lost_s'])} of it to do again"
            shown.append(
                f"  attempt {phase['attempt']} ran {span(phase['seconds'])}, ended{by} ({phase['rule']}){lost}"
            )
    return shown


def _blocker(blocker: dict[str, Any]) -> list[str]:
    what = " of ".join(str(part) for part in (blocker.get("resource"), blocker.get("flavor")) if part)
    line = f"  {blocker.get('kind')}" + (f" {plain(what)}" if what else "")
    if blocker.get("asked") is not None:
        free = "" if blocker.get("free") is None else f", {_amount(blocker, 'free')} free"
        line += f": {_amount(blocker, 'asked')} asked{free}"
    elif blocker.get("message"):
        line += f": {plain(blocker['message'])}"
    held = blocker.get("held_by") or []
    lines = [line]
    for holder in held[:HOLDERS]:
        preemptible = "can be preempted" if holder.get("preemptible") else "stays"
        because = f" ({plain(holder['because'])})" if holder.get("because") else ""
        priority = f" [{holder['priority_class']}]" if holder.get("priority_class") else ""
        whose = f", {plain(holder['owner'])}'s" if holder.get("owner") else ""
        since = f", for {age(holder['since'])}" if holder.get("since") else ""
        who = f"{holder['id']} {plain(holder.get('name') or '')}{priority}"
        lines.append(f"    held by {who}: {preemptible}{because}{whose}{since}")
    if len(held) > HOLDERS:
        lines.append(f"    and by {len(held) - HOLDERS} more")
    return lines


def _amount(blocker: dict[str, Any], key: str) -> str:
    value = blocker[key]
    return format_quantity(value, resource=str(blocker.get("resource") or "")) if isinstance(value, int) else str(value)


def _event(event: dict[str, Any]) -> str:
    at = event.get("at")
    when = f"{moment(at):%H:%M:%S}Z, {age(at)} ago" if at else ""
    text = f": {plain(event['message'])}" if event.get("message") else ""
    return f"  {when}  {event.get('kind')}{text}"
