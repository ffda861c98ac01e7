"""The capacity report, of a platform that runs or of a home at rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.domain.ids import Instant
from tenure.domain.policy import Policy
from tenure.domain.workload import Card
from tenure.ledger import Ledger
from tenure.settings import Settings

from ..at_rest import at_rest, since_of
from ..capacity import Facts, report
from ..samples import SampleLog
from ..specs import SpecStore
from ..traffic import jobs_between

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["capacity", "capacity_at_rest"]

WEEK_S = 7 * 86_400.0
LEAST_US = 60_000_000


def capacity(platform: Platform, *, since_s: float = WEEK_S) -> dict[str, Any]:
    """Raises InvalidRequest for a time that is no past."""
    return _report(
        platform.settings,
        platform.ledger,
        platform.specs,
        platform.policy.current,
        platform.cards,
        platform.found.source,
        now=platform.clock.now(),
        since_s=since_s,
    )


def capacity_at_rest(settings: Settings, *, since_s: float = WEEK_S) -> dict[str, Any]:
    """Without the daemon, from what lies in its home.  Raises NotFound where nothing ran there yet."""
    with at_rest(settings) as home:
        return _report(
            settings, home.ledger, home.specs, home.policy, home.cards, home.source, now=home.now, since_s=since_s
        )


def _report(
    settings: Settings,
    ledger: Ledger,
    specs: SpecStore,
    policy: Policy,
    cards: tuple[Card, ...],
    source: str,
    *,
    now: Instant,
    since_s: float,
) -> dict[str, Any]:
    first = ledger.events(limit=1)  # a young ledger has no week behind it
    begun = first[0].at if first else now
    since = since_of(now, since_s)
    rows = jobs_between(ledger, since)
    begun = min([begun, Instant(now - LEAST_US), *(row.submitted_at for row in rows)])
    since = Instant(max(since, begun))
    digests = {row.spec_digest for row in rows}
    return report(
        Facts(
            since=since,
            now=now,
            policy=policy,
            cards=cards,
            card_source=source,
            rows=rows,
            attempts=ledger.attempts_of([row.id for row in rows if row.attempts]),
            specs={digest: specs.by_digest(digest) for digest in digests},
            readings=SampleLog(settings.home / "telemetry").read(since=since),
        )
    )
