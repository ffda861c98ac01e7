"""`tenure logs`: what a job printed, byte for byte: its stdout on stdout, its stderr on stderr."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from .call import Call
from .client import Refused
from .follow import Pump, patiently
from .grammar import Option, Usage, Verb
from .render import moment, note
from .times import seconds_of

VERB = Verb(
    usage="logs ID [-f] [flags]",
    options=(
        Option(names=("--follow", "-f"), help="stay until it has ended, across attempts"),
        Option(names=("--tail", "-n"), value="N", help="the last N lines of each stream"),
        Option(names=("--since",), value="DURATION", help="only of attempts that were alive in the last DURATION"),
        Option(names=("--task",), value="K", help="of an array the task K; of a gang the process of rank K"),
        Option(names=("--attempt",), value="N", help="of attempt N (default: the newest)"),
        Option(names=("--stderr",), help="its stderr alone, on stdout"),
        Option(names=("--stdout",), help="its stdout alone"),
    ),
    positionals=(1, 1),
    what="job id",
    examples=(("tenure logs -f @", "follow the newest job"), ("tenure logs 37 --tail 20 --stderr", "how it ended")),
)


def run(call: Call) -> int:
    parsed = call.parsed
    if parsed.on("stderr") and parsed.on("stdout"):
        raise Usage("--stderr and --stdout exclude each other; without either, both are printed")
    job, rank, shown = _which(call)
    since = parsed.text("since")
    if since and not _alive_since(shown, seconds_of(since, flag="--since")):
        note(f"no attempt of job {job} was alive in the last {since} (lines carry no time of their own)")
        return 0
    processes = int(shown.get("processes") or 1)
    if processes > 1 and rank is None:
        note(f"job {job} has {processes} processes; this is rank 0 (--task K for another)")
    attempt = parsed.count("attempt")
    streams = (
        {"stderr": 1} if parsed.on("stderr") else {"stdout": 1} if parsed.on("stdout") else {"stdout": 1, "stderr": 2}
    )
    sys.stdout.flush()
    if parsed.on("follow"):
        return _follow(call, job, attempt, rank, streams)
    tail = parsed.count("tail")
    if not shown.get("attempts") and shown.get("state") != "ended":
        note(f"job {job} has not started: {shown.get('message') or shown.get('reason') or shown.get('state')}")
    for stream, fd in streams.items():
        copy_once(call, job, stream, fd, attempt=attempt, rank=rank, tail=tail)
    return 0


def _which(call: Call) -> tuple[str, int | None, Any]:
    """The job, the rank and what `show` says.  `--task` of an array is one of its jobs; of a gang, a rank."""
    job = call.job_id(call.parsed.positionals[0])
    task = call.parsed.count("task")
    shown = call.show(job)
    tasks = shown.get("tasks")
    if not isinstance(tasks, list):
        return job, task, shown
    if task is None:
        raise Usage(f"{job} is an array; say which task with --task K, or write {job}_K")
    return f"{job}_{task}", None, call.show(f"{job}_{task}")


def _alive_since(shown: dict[str, Any], seconds: float) -> bool:
    """Whether an attempt was alive within the last `seconds`."""
    for attempt in shown.get("attempts") or []:
        ended = moment(attempt.get("ended_at"))
        if attempt.get("started_at") and (ended is None or time.time() - ended.timestamp() <= seconds):
            return True
    return False


def copy_once(
    call: Call, job: str, stream: str, fd: int, *, attempt: int | None, rank: int | None, tail: int | None
) -> None:
    """What there is now of one stream."""
    from .client import job_path
    from .follow import CHUNK, ReaderGone, write_all

    query = {"stream": stream, "attempt": attempt, "task": rank, "tail": tail}
    with call.client.stream(job_path(job, "/logs"), query=query) as reply:
        while chunk := reply.read1(CHUNK):
            try:
                write_all(fd, chunk)
            except ReaderGone as gone:
                raise gone.error from None  # `main` knows what to do


def _follow(call: Call, job: str, attempt: int | None, rank: int | None, streams: dict[str, int]) -> int:
    """Attempt after attempt until the job has ended; of one attempt only where one was named."""
    tail = call.parsed.count("tail")
    number = attempt or _first(call, job)
    told = False
    while True:
        pumps = [
            Pump(call.client, job, name, attempt=number, task=rank, fd=fd, tail=tail, gone=_quit)
            for name, fd in streams.items()
        ]
        if number:
            for pump in pumps:
                pump.start()
            for pump in pumps:
                pump.join()
                if pump.refused is not None:
                    raise Refused(pump.refused.status, {"detail": str(pump.refused), "code": pump.refused.code})
            tail = None
        if attempt:
            return 0
        shown = patiently(lambda: call.show(job))
        later = [int(a["number"]) for a in shown.get("attempts") or [] if int(a["number"]) > number]
        if later:
            number = min(later)
            note(f"attempt {number}") if number > 1 else None
        elif shown["state"] == "ended":
            return 0
        else:
            if not told and not number:
                note(f"job {job} waits: {shown.get('message') or shown.get('reason') or shown['state']}")
                told = True
            _until_news(call, job)


def _first(call: Call, job: str) -> int:
    """The newest attempt, which is where following begins; 0 while there is none."""
    shown = patiently(lambda: call.show(job))
    return max((int(a["number"]) for a in shown.get("attempts") or []), default=0)


def _until_news(call: Call, job: str) -> None:
    """Until something about the job may have changed."""
    patiently(lambda: call.client.call("GET", f"/jobs/{job}:wait", query={"timeout": 1}, timeout_s=30))


def _quit(error: OSError) -> None:
    """Nobody reads any more, or nothing can be written any more."""
    from .main import unwritten

    os._exit(128 + 13 if isinstance(error, BrokenPipeError) else unwritten(error))
