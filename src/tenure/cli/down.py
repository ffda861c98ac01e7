"""`tenure down`: stop the platform, and return once everything that it should end has ended."""

from __future__ import annotations

import subprocess
import sys
import time

from .call import Call
from .client import Refused, Unreachable
from .grammar import Option, Usage, Verb
from .holder import Holder, Watch, holder
from .progress import Progress
from .render import emit, note
from .supervisors import alive
from .times import seconds_of

LOOK_S = 2.0  # between two questions whether something is in the way

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
        return _end_orphans(call) if not keep and alive(call.settings) else _done(call, "no platform is running")
    watch = Watch(call.settings, who)
    _ask(call, who, watch, keep_jobs=keep)
    if not _wait(call, watch):
        note(f"process {who.pid} has not ended yet; it goes on stopping (`tenure down` waits again)")
        return 124
    return _done(call, "the platform has stopped and its jobs go on") if keep else _stopped(call)


def _stopped(call: Call) -> int:
    """0 only if nothing is left: what cannot be killed is named, and keeps the code from being 0."""
    left = alive(call.settings)
    if left:
        note(
            f"the platform has stopped, and {', '.join(left)} would not end; `tenure up -d && tenure down` tries again"
        )
        return 1
    return _done(call, "the platform has stopped")


def _ask(call: Call, who: Holder, watch: Watch, *, keep_jobs: bool) -> None:
    """By REST; by signal where REST does not answer."""
    try:
        call.client.post("/daemon:stop", {"keep_jobs": keep_jobs})
    except (Unreachable, Refused) as error:
        if isinstance(error, Refused) and error.status < 500:
            raise
        if not watch.ended(0):
            note(f"the platform does not answer; asking process {who.pid} by signal")
            watch.terminate(keep_jobs=keep_jobs)


def _wait(call: Call, watch: Watch) -> bool:
    """Until the daemon has ended, and with it all that it was to end.  False after --timeout."""
    text = call.parsed.text("timeout")
    deadline = time.monotonic() + seconds_of(text, flag="--timeout") if text else None
    said, ask_again = "", time.monotonic() + LOOK_S
    with Progress("stopping the platform") as progress:
        while not watch.ended(0.2):
            now = time.monotonic()
            if deadline is not None and now > deadline:
                return False
            if now > ask_again:
                trouble = _trouble(call)
                if trouble and trouble != said:
                    note(f"the platform cannot stop yet: {trouble}")
                said, ask_again = trouble or said, time.monotonic() + LOOK_S
            progress.tell(_leaving(call))
    return True


def _trouble(call: Call) -> str:
    """Why the platform cannot go on as it wants to, such as a full disk; "" where it can, or does not answer."""
    try:
        return str(call.client.call("GET", "/status", timeout_s=1).get("trouble", ""))
    except (Unreachable, Refused):
        return ""


def _leaving(call: Call) -> str:
    """Who still has its grace, as far as the platform still answers."""
    if not sys.stderr.isatty():
        return ""
    try:
        jobs = call.client.call("GET", "/jobs", query={"state": "running,evicting,cancelling"}, timeout_s=1)["items"]
    except (Unreachable, Refused):
        return "the last words are being written"
    return f"{len(jobs)} jobs have their grace: {', '.join(job['id'] for job in jobs[:5])}" if jobs else ""


def _end_orphans(call: Call) -> int:
    """The daemon is gone and attempts go on: a daemon is started for as long as it takes to end them truthfully."""
    note(f"the daemon is gone and its jobs go on ({', '.join(alive(call.settings))}); a new one is started to end them")
    command = [sys.executable, "-P", "-m", "tenure.portal.daemon", "--only-to-stop"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    return done.returncode or _stopped(call)


def _done(call: Call, text: str) -> int:
    if call.structured:
        emit({"running": False, "message": text}, call.form)
    else:
        note(text)
    return 0
