"""The promises, checked from the ledger and the run directories after everything has stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenure.domain.events import Event, EventKind
from tenure.domain.ids import JobId
from tenure.ledger import Ledger, fold
from tenure.sdk.record import Record, read_record

from .models import ASSISTANT, EMBEDDER, Answer

__all__ = ["Cast", "Promise", "promises"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """The jobs of the story, by their part."""

    study: str
    gang: str
    training: str
    crash: str
    cancelled: str
    reference: Path  # the run directory of the undisturbed study
    assistant: str  # the job that the first question woke
    first: Sequence[Answer]  # to the three who asked at once
    held: Answer
    embedder: tuple[int, int]  # its process at the beginning and at the end


@dataclass(frozen=True, slots=True)
class Promise:
    text: str
    kept: bool
    seen: str


def promises(home: Path, cast: Cast, *, shares: int, memory: int, remains: list[str]) -> Iterator[Promise]:
    ledger = Ledger.open(f"sqlite:///{home / 'ledger.sqlite3'}")
    try:
        yield from _study(home, cast, ledger)
        yield from _others(home, cast, ledger)
        yield from _models(home, cast, ledger)
        yield from _books(ledger, shares=shares, memory=memory)
    finally:
        ledger.close()
    yield Promise("nothing was left running", not remains, "; ".join(remains) or "no process of this home is left")


def _record(home: Path, job: str, attempt: int) -> Record:
    return read_record(home / "runs" / f"{job}.{attempt}")


def _study(home: Path, cast: Cast, ledger: Ledger) -> Iterator[Promise]:
    first, last = _record(home, cast.study, 1), _record(home, cast.study, 2)
    stops = ", ".join(f"{mark['stop']} by {mark['by']}" for mark in first.stops)
    yield Promise(
        "the preempted study's record closed as interrupted, and names who took its place",
        first.outcome == "interrupted"
        and any(m["stop"] == "preempt" and m["by"] == cast.training for m in first.stops),
        f"{first.outcome}; {stops}",
    )
    evicted = ledger.attempts(cast.study)[0]
    yield Promise(
        "its eviction stands in the ledger, with preemptor, rule and time",
        evicted.evicted_by == cast.training and bool(evicted.evicted_reason) and evicted.evicted_at is not None,
        f"by job {evicted.evicted_by}, {evicted.evicted_reason}",
    )
    resumed = last.resumed_from or {}
    step = resumed.get("step")
    yield Promise(
        "its second run links to the first and went on from a checkpoint",
        last.retry_of == f"{cast.study}.1" and isinstance(step, int) and step > 0,
        f"retry of {last.retry_of}, from step {step}",
    )
    reference = read_record(cast.reference)
    same = last.results == reference.results and bool(last.results)
    yield Promise(
        "it ended with exactly the result of an undisturbed run",
        last.outcome == "completed" and same,
        f"{last.results.get('weights_sha256', '?')!s:.16}… and {reference.results.get('weights_sha256', '?')!s:.16}…; "
        f"accuracy {last.results.get('accuracy')}",
    )


def _others(home: Path, cast: Cast, ledger: Ledger) -> Iterator[Promise]:
    gang = ledger.job(cast.gang)
    words = [
        (home / "runs" / f"{cast.gang}.1" / name).read_text()
        for name in ("stdout.log", "stdout.1.log", "stdout.2.log", "stdout.3.log")
    ]
    met = sum("met 4 of 4" in text for text in words)
    yield Promise(
        "the gang started whole: all four met",
        met == 4 and gang.outcome == "completed",
        f"{met} of 4 met; {gang.outcome}",
    )
    training = ledger.job(cast.training)
    adopted = [e for e in ledger.events(job_id=cast.training, limit=1000) if e.kind is EventKind.ATTEMPT_ADOPTED]
    yield Promise(
        "the training survived the death of the daemon: adopted, not run twice",
        training.attempts == 1 and training.outcome == "completed" and bool(adopted),
        f"{training.attempts} attempt, adopted {len(adopted)} times, {training.outcome}",
    )
    cancelled, record = ledger.job(cast.cancelled), _record(home, cast.cancelled, 1)
    yield Promise(
        "the cancelled job is cancelled, in ledger and record, not failed",
        cancelled.outcome == "cancelled" and record.outcome == "cancelled",
        f"ledger {cancelled.outcome}, record {record.outcome}",
    )
    crash, record = ledger.job(cast.crash), _record(home, cast.crash, 1)
    yield Promise(
        "the crashed job failed, with its own exit code",
        crash.outcome == "failed" and crash.exit_code == 1 and record.outcome == "failed",
        f"ledger {crash.outcome} {crash.exit_code}, record {record.outcome}",
    )


def _models(home: Path, cast: Cast, ledger: Ledger) -> Iterator[Promise]:
    journal = [json.loads(line) for line in (home / "gateway" / "requests.jsonl").read_text().splitlines()]
    asked = [line for line in journal if line["model"] == ASSISTANT]
    first = [line for line in asked if line["run"] == f"{cast.assistant}.1"]
    starts = (home / "runs" / f"{cast.assistant}.1" / "stdout.log").read_text().count("pid ")
    waits = ", ".join(f"{line['held_s']:.1f}" for line in first)
    yield Promise(
        "three questions at once woke the assistant once: one process answered all three",
        starts == 1
        and {answer.run for answer in cast.first} == {f"{cast.assistant}.1"}
        and [(line["status"], line["held"]) for line in first] == [(200, True)] * 3
        and len({answer.text for answer in cast.first}) == 1,
        f"{starts} process in run {cast.assistant}.1; held for {waits} s",
    )
    record = _record(home, cast.assistant, 1)
    stops = ", ".join(f"{mark['stop']} by {mark['by']}" for mark in record.stops)
    yield Promise(
        "the idle assistant left for the training: interrupted, with the preemptor's name",
        record.outcome == "interrupted"
        and any(mark["stop"] == "preempt" and mark["by"] == cast.training for mark in record.stops),
        f"{record.outcome}; {stops}",
    )
    late = next((line for line in asked if line["run"] == cast.held.run), None)
    began = ledger.attempt(cast.held.run).started_at
    ended = ledger.job(cast.training).ended_at
    yield Promise(
        "the question that came during the training was held, and answered once it had ended",
        late is not None
        and (late["status"], late["held"]) == (200, True)
        and "Paris" in cast.held.text
        and len(asked) == 4
        and began is not None
        and ended is not None
        and began >= ended,
        f"held for {late['held_s'] if late else 0:.1f} s, answered by run {cast.held.run}",
    )
    serving = [job for job in fold(ledger.events(limit=100_000)).jobs.values() if job.name == EMBEDDER]
    attempts = sum(job.attempts for job in serving)
    yield Promise(
        "the resident embedder was up all along",
        len(serving) == attempts == 1 and len(set(cast.embedder)) == 1,
        f"{attempts} attempt, process {cast.embedder[0]} at the beginning and {cast.embedder[1]} at the end",
    )


def _books(ledger: Ledger, *, shares: int, memory: int) -> Iterator[Promise]:
    events = ledger.events(limit=100_000)
    folded = fold(events)
    rows = {job: ledger.job(job) for job in folded.jobs}
    differing = [job for job, row in rows.items() if folded.jobs[job] != row]
    yield Promise(
        "folding the diary gives the rows", not differing and bool(rows), f"{len(events)} events, {len(rows)} jobs"
    )
    most_shares, most_memory = _most(events)
    yield Promise(
        "the card was never promised twice",
        0 < most_shares <= shares and 0 < most_memory <= memory,
        f"at most {most_shares} of {shares} shares and {most_memory / 2**30:.0f} of {memory / 2**30:.0f} GiB",
    )


def _most(events: Sequence[Event]) -> tuple[int, int]:
    """The most that was ever reserved at once, read off the diary."""
    held: dict[JobId | None, tuple[int, int]] = {}
    most = (0, 0)
    for event in events:
        if "reservation" not in event.changes:
            continue
        reservation: Any = event.changes["reservation"]
        places = (reservation or {}).get("placements", [])
        held[event.job_id] = (sum(p["shares"] for p in places), sum(p["memory"] for p in places))
        now = (sum(s for s, _ in held.values()), sum(m for _, m in held.values()))
        most = (max(most[0], now[0]), max(most[1], now[1]))
    return most
