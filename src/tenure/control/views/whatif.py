"""What another policy would have done, asked of a platform that runs or of a home at rest."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenure.domain.errors import Unavailable
from tenure.domain.policy import Policy
from tenure.engine.lives import Resume
from tenure.manifests.policy import read_policy
from tenure.settings import Settings

from ..at_rest import at_rest, since_of
from ..traces import from_trace
from ..traffic import from_ledger
from ..whatif import try_policy as compare

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["try_policy", "try_policy_at_rest"]

WEEK_S = 7 * 86_400.0
_turn = threading.Lock()  # a replay takes a processor for seconds; the daemon has other things to do


def try_policy(platform: Platform, files: Sequence[Sequence[str]], *, since_s: float = WEEK_S) -> dict[str, Any]:
    """The last `since_s` under the policy in force and under these files.  Raises InvalidManifest, InvalidRequest;
    Unavailable while another replay is on its way."""
    after = read_policy([(name, text) for name, text in files]).policy
    now = platform.clock.now()
    since = since_of(now, since_s)
    if not _turn.acquire(blocking=False):
        raise Unavailable("another policy is being tried; ask again when it is done", code="ReplayBusy")
    try:
        traffic = from_ledger(platform.ledger, platform.specs, since=since, now=now)
        before, cards = platform.policy.current, platform.cards
        return compare(before=before, after=after, cards=cards, traffic=traffic)
    finally:
        _turn.release()


def try_policy_at_rest(
    settings: Settings,
    files: Sequence[Sequence[str]],
    *,
    in_force: Policy | None = None,
    since_s: float = WEEK_S,
    trace: tuple[str, str] | None = None,
    resume: str = Resume.REMAINING,
) -> dict[str, Any]:
    """The same without the daemon, from what lies in its home.  `trace` is (file name, text), instead of the ledger.

    `in_force` None takes the policy directory of the home for what is in force.
    """
    after = read_policy([(name, text) for name, text in files]).policy
    with at_rest(settings) as home:
        if trace is not None:
            traffic = from_trace(trace[1], file=trace[0])
        else:
            traffic = from_ledger(home.ledger, home.specs, since=since_of(home.now, since_s), now=home.now)
        return compare(
            before=in_force or home.policy, after=after, cards=home.cards, traffic=traffic, resume=Resume(resume)
        )
