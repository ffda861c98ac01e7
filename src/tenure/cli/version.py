"""`tenure version`: this program's version, and the platform's where one runs."""

from __future__ import annotations

import contextlib

import tenure

from .call import Call
from .client import Refused, Unreachable
from .grammar import Verb
from .render import emit, note

VERB = Verb(usage="version")


def run(call: Call) -> int:
    platform = None
    with contextlib.suppress(Unreachable, Refused):
        platform = call.client.call("GET", "/version", timeout_s=2)["version"]
    if call.structured:
        emit({"version": tenure.__version__, "platform": platform}, call.form)
        return 0
    print(f"tenure {tenure.__version__}")
    if platform not in (None, tenure.__version__):
        note(f"the running platform is {platform}; `tenure down --keep-jobs && tenure up -d` brings it to this one")
    return 0
