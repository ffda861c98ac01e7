"""`tenure hold`: a queued job stays in its queue and is not admitted."""

from __future__ import annotations

from .call import Call
from .client import job_path
from .each import each
from .grammar import Verb

VERB = Verb(usage="hold ID…", positionals=(1, None), what="job id", details="`tenure release` lets it go again.")


def run(call: Call) -> int:
    return each(call, lambda job: call.client.post(job_path(job, ":hold")))
