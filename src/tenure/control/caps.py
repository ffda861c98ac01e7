"""What a namespace's live jobs ask for already, and whether one more batch fits under its caps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenure.domain.job import JobSpec
from tenure.ledger import Transaction
from tenure.manifests.caps import JOBS, check_quotas

from .workloads import pod_requests

if TYPE_CHECKING:
    from .app import Platform

__all__ = ["check_caps", "is_capped"]


def is_capped(platform: Platform, specs: Sequence[JobSpec]) -> bool:
    """Whether `check_caps` would look at the live jobs, so that those of before have to be written first."""
    return bool(_capped(platform, specs))


def check_caps(platform: Platform, tx: Transaction, specs: Sequence[JobSpec]) -> None:
    """Asked inside the transaction that writes them, so that two submitters cannot both take the last room.

    Costs a walk over the live jobs, and nothing where no ResourceQuota concerns the namespaces.
    """
    capped = _capped(platform, specs)
    if not capped:
        return
    quotas = platform.policy.current.resource_quotas
    used: dict[str, Counter[str]] = {namespace: Counter() for namespace in capped}
    for row in tx.live_jobs():
        if row.namespace in capped:
            used[row.namespace] += _asks(platform, platform.specs.of(row), tasks=1)
    for spec in specs:
        if spec.namespace in capped:
            asked = _asks(platform, spec, tasks=len(spec.array.indices) if spec.array is not None else 1)
            check_quotas(spec.namespace, asked, used[spec.namespace], quotas)
            used[spec.namespace] += asked


def _capped(platform: Platform, specs: Sequence[JobSpec]) -> set[str]:
    quotas = platform.policy.current.resource_quotas
    return {quota.namespace for quota in quotas if quota.hard} & {spec.namespace for spec in specs}


def _asks(platform: Platform, spec: JobSpec, *, tasks: int) -> Counter[str]:
    each = pod_requests(spec, platform.cards)
    return Counter({name: amount * spec.processes * tasks for name, amount in each.items()} | {JOBS: tasks})
