"""`tenure cancel`: end jobs wherever they are; the record says that a person asked."""

from __future__ import annotations

from .call import Call
from .client import job_path
from .each import each
from .grammar import Option, Verb
from .times import seconds_of

VERB = Verb(
    usage="cancel ID… [flags]",
    options=(
        Option(names=("--reason", "-r"), value="TEXT", help="why, for the record"),
        Option(names=("--signal", "-s"), value="SIGNAL", help="what to send first (default TERM)"),
        Option(names=("--grace",), value="DURATION", help="until the kill (default: the job's own)"),
    ),
    positionals=(1, None),
    what="job id",
    details="An array's id cancels its tasks.  A job that has ended stays as it ended.",
    examples=(
        ("tenure cancel @", "the newest job"),
        ("tenure cancel 37_4 --grace 60s --reason 'wrong data'", "one task of an array"),
    ),
)


def run(call: Call) -> int:
    grace = call.parsed.text("grace")
    body = {
        "reason": call.parsed.text("reason") or "",
        "signal": call.parsed.text("signal"),
        "grace_s": seconds_of(grace, flag="--grace") if grace else None,
    }
    return each(
        call, lambda job: call.client.post(job_path(job, ":cancel"), {k: v for k, v in body.items() if v is not None})
    )
