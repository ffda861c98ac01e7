"""`tenure events`: the diary, the newest lines last: what happened to jobs, models, windows, cards and tokens, and by whom."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tenure.domain.events import EventKind

from .call import Call
from .follow import events
from .grammar import Option, Usage, Verb, nearest
from .render import emit, moment, plain

VERB = Verb(
    usage="events [JOB] [-n N] [--kind WORD]… [-f]",
    options=(
        Option(names=("--limit", "-n"), value="N", help="the newest N (default 20)"),
        Option(
            names=("--kind", "-k"), value="WORD", many=True, help="those whose kind begins so: Job, Token, ModelWoken"
        ),
        Option(names=("--follow", "-f"), help="go on with what happens, until Ctrl-C; with -o json a line each"),
    ),
    positionals=(0, 1),
    what="job id",
    details="""
    Each line is a change that was made, with its cause.  For kinds, and for the tasks of an array, the last 5,000 lines are
    looked through.  -o json has the fields that a line set and what else was noted with it.
    """,
    examples=(
        ("tenure events --kind Token", "who made, changed or revoked access tokens"),
        ("tenure events @ -f", "the newest job, live"),
    ),
)

MOST = 5000  # lines that the platform says at once
EVERY = ("",)
KIND = max(map(len, EventKind))


def run(call: Call) -> int:
    kinds = _kinds(call)
    limit = call.parsed.count("limit")
    limit = 20 if limit is None else limit
    if limit > MOST:
        raise Usage(f"--limit takes a number up to {MOST}")
    job = call.ids[0] if call.parsed.positionals else None
    tasks = f"{job}_" if job is not None and "array" in call.show(job) else None

    def wanted(line: Mapping[str, Any]) -> bool:
        return line["kind"].startswith(kinds) and (tasks is None or (line["job_id"] or "").startswith(tasks))

    following = call.parsed.on("follow")
    chosen = tasks is not None or kinds != EVERY
    found = call.client.get("/events", job=None if tasks else job, newest=True, limit=MOST if chosen else max(1, limit))
    shown = [line for line in found if wanted(line)][-limit:] if limit else []
    if call.structured and not following:
        emit(shown, call.form)
        return 0
    tell = _as_json if call.structured else _as_id if call.form == "name" else _as_text
    for line in shown:
        tell(line)
    if following:
        for news in events(call.client, after=found[-1]["id"] if found else 0, job=job):
            if wanted(news.whole):
                tell(news.whole)
    return 0


def _kinds(call: Call) -> tuple[str, ...]:
    """How the kinds that are asked for begin.  Raises Usage for a word that begins none."""
    words = tuple(call.parsed.many("kind"))
    for word in words:
        if not any(kind.startswith(word) for kind in EventKind):
            raise Usage(f"--kind {word!r}: no kind of event begins so{nearest(word, [*EventKind])}")
    return words or EVERY


def _as_json(line: Mapping[str, Any]) -> None:
    print(json.dumps(line, ensure_ascii=False), flush=True)


def _as_id(line: Mapping[str, Any]) -> None:
    print(line["id"], flush=True)


def _as_text(line: Mapping[str, Any]) -> None:
    at = moment(line["at"])
    assert at is not None
    says = ": ".join(part for part in (line["job_id"], plain(line["message"]) or line["run_id"]) if part)
    print(f"{at.astimezone():%Y-%m-%d %H:%M:%S}  {line['kind']:<{KIND}}  {says}".rstrip(), flush=True)
