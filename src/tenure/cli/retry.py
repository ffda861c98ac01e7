"""`tenure retry`: submit ended jobs again as they were."""

from __future__ import annotations

from typing import Any

from .call import Call
from .client import job_path
from .each import each
from .grammar import Option, Verb

VERB = Verb(
    usage="retry ID… [--only failed]",
    options=(
        Option(names=("--only",), value="failed", choices=("failed",), help="of an array, the tasks that failed"),
        Option(names=("--only-failed",), help="the same", hidden=True),
    ),
    positionals=(1, None),
    what="job id",
    details="Prints the id of the new job, which links to the old one; the old record stays.",
)


def run(call: Call) -> int:
    only = call.parsed.text("only") == "failed" or call.parsed.on("only-failed")

    def again(job: str) -> Any:
        return call.client.post(job_path(job, ":retry"), {"only_failed": only})

    return each(call, again, shown=lambda job: str(job["id"]))
