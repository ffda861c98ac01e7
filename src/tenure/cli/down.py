"""`tenure down`: stop the platform, and return once everything that it should end has ended."""

from __future__ import annotations

import time

from .call import Call
from .client import Refused, Unreachable
from .grammar import Option, Usage, Verb
from .holder import Holder, holder, terminate
from .progress import Progress
from .render import emit, note

VERB = Verb(
    usage="down [--keep-jobs]",
    options=(
        Option(
            names=("--keep-jobs",), help="leave the jobs running under their supervisors; the next `up` adopts them"
        ),
        Option(names=("--timeout",), value="DURATION", help="give up waiting after this long (default: never)"),
    ),
    details="""
    Jobs are asked to stop and have their grace; interrupted ones are queued again at the next `up`.  Returns 0 when
    nothing runs any more, also when nothing ran before.
    """,
)


def run(call: Call) -> int:
    keep = call.parsed.on("keep-jobs")
    if call.settings.url is not None:
        raise Usage("TENURE_URL points at a platform elsewhere; `down` stops the one of this machine's TENURE_HOME")
    who = holder(call.settings)
    if who is None:
        return _done(call, "no platform is running" + ("" if keep else _orphans(call)))
    _ask(call, who, keep_jobs=keep)
    if not _wait(call, who):
        print_still(who)
        return 124
    return _done(call, "the platform has stopped" + (" and its jobs go on" if keep else ""))


def _ask(call: Call, who: Holder, *, keep_jobs: bool) -> None:
    """By REST; by signal where REST does not answer."""
    try:
        call.client.post("/daemon:stop", {"keep_jobs": keep_jobs})
    except (Unreachable, Refused) as error:
        if isinstance(error, Refused) and error.status < 500:
            raise
        if holder(call.settings) is not None:
            note(f"the platform does not answer; asking process {who.pid} by signal")
            terminate(call.settings, keep_jobs=keep_jobs)


def _wait(call: Call, who: Holder) -> bool:
    """Until the lock is free.  False after --timeout."""
    from .times import seconds_of

    text = call.parsed.text("timeout")
    deadline = time.monotonic() + seconds_of(text, flag="--timeout") if text else None
    pause = 0.005
    with Progress("stopping the platform") as progress:
        while holder(call.settings) == who:
            if deadline is not None and time.monotonic() > deadline:
                return False
            progress.tell("jobs have their grace")
            time.sleep(pause)
            pause = min(0.05, pause * 1.5)
    return True


def print_still(who: Holder) -> None:
    note(f"process {who.pid} has not ended yet; it goes on stopping (`tenure down` waits again)")


def _orphans(call: Call) -> str:
    from .supervisors import alive

    left = alive(call.settings)
    if not left:
        return ""
    names = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
    return f", and {names} still run under their supervisors: `tenure up -d && tenure down` ends them"


def _done(call: Call, text: str) -> int:
    if call.structured:
        emit({"running": False, "message": text}, call.form)
    else:
        note(text)
    return 0
