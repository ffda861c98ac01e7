"""Names that a job uses, as the policy knows them: its queue and its priority class."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from tenure.domain.errors import InvalidRequest
from tenure.domain.job import JobSpec
from tenure.domain.policy import Policy, QuotaCheckStrategy

__all__ = ["class_of", "nearest", "priority_of", "queue_of", "uncounted"]


def queue_of(policy: Policy, spec: JobSpec) -> str:
    """The local queue.  Raises InvalidRequest with the nearest name, and the ones there are."""
    wanted = spec.queue or "default"
    if (spec.namespace, wanted) in policy.local_queues:
        return wanted
    known = sorted(name for namespace, name in policy.local_queues if namespace == spec.namespace)
    if not known:
        spaces = sorted({namespace for namespace, _ in policy.local_queues})
        raise InvalidRequest(
            f"namespace {spec.namespace!r} has no local queue; namespaces with queues: {', '.join(spaces) or 'none'}",
            field="namespace",
            code="UnknownQueue",
        )
    raise InvalidRequest(
        f"there is no local queue {wanted!r} in namespace {spec.namespace!r}{_hint(wanted, known)}",
        field="queue",
        code="UnknownQueue",
    )


def priority_of(policy: Policy, spec: JobSpec) -> tuple[int, str | None]:
    """The priority and the class it comes from.

    Kueue's rule: a WorkloadPriorityClass wins over a PriorityClass, which wins over the globalDefault one, which wins
    over 0.  Raises InvalidRequest with the nearest name.
    """
    return class_of(policy, spec.priority_class)


def class_of(policy: Policy, wanted: str | None) -> tuple[int, str | None]:
    """The same for the name of a class, or for none."""
    if wanted is None:
        fallback = next((c for c in policy.priority_classes.values() if c.global_default), None)
        fallback = policy.workload_priority_classes.get("default", fallback)
        return (fallback.value, fallback.name) if fallback is not None else (0, None)
    found = policy.workload_priority_classes.get(wanted) or policy.priority_classes.get(wanted)
    if found is None:
        known = sorted({*policy.workload_priority_classes, *policy.priority_classes})
        raise InvalidRequest(
            f"there is no priority class {wanted!r}{_hint(wanted, known)}",
            field="priority",
            code="UnknownPriorityClass",
        )
    return found.value, found.name


def uncounted(policy: Policy, spec: JobSpec, requests: Mapping[str, int]) -> list[str]:
    """What the job asks for and no quota of its queue covers, where the policy lets that pass (IgnoreUndeclared)."""
    if policy.quota_check is not QuotaCheckStrategy.IGNORE_UNDECLARED:
        return []
    queue = policy.cluster_queues.get(policy.local_queues[spec.namespace, spec.queue or "default"].cluster_queue)
    covered = {name for group in queue.resource_groups for name in group.covered_resources} if queue else set(requests)
    covered |= {transformation.input for transformation in policy.transformations}
    return sorted(n for n in requests if n not in covered and not n.startswith(policy.exclude_resource_prefixes))


def nearest(word: str, known: Sequence[str]) -> str:
    """`; did you mean 'name'?`, or an empty text."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _hint(word: str, known: Sequence[str]) -> str:
    return f"{nearest(word, known)} (there are: {', '.join(known) or 'none'})"
