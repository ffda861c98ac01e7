"""`tenure release`: a held job may be admitted again, now or from a time on."""

from __future__ import annotations

from .call import Call
from .client import job_path
from .each import each
from .grammar import Option, Verb
from .times import moment_here

VERB = Verb(
    usage="release ID… [--at TIME]",
    options=(Option(names=("--at",), value="TIME", help="not before: now+1hour, or an RFC 3339 time"),),
    positionals=(1, None),
    what="job id",
)


def run(call: Call) -> int:
    at = call.parsed.text("at")
    return each(call, lambda job: call.client.post(job_path(job, ":release"), {"at": moment_here(at)} if at else {}))
