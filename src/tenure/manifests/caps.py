"""A namespace's hard caps, as pure rules: what a LimitRange adds and refuses, and what a ResourceQuota has room for.

Kubernetes' rules for a Container's requests, asked once, at submit.  Amounts are integers as `domain.amounts` makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tenure.domain.amounts import CPU, GPU, GPU_MEMORY, MEMORY, format_quantity
from tenure.domain.errors import Conflict, InvalidRequest
from tenure.domain.job import JobSpec
from tenure.domain.policy import LimitRange, ResourceQuota

__all__ = ["JOBS", "check_limits", "check_quotas", "with_defaults"]

JOBS = "count/jobs"
_FIELDS = {GPU: "shares", GPU_MEMORY: "gpu_memory", CPU: "cpus", MEMORY: "memory"}
_FLAGS = {GPU: "--shares", GPU_MEMORY: "--gpu-memory", CPU: "--cpus", MEMORY: "--memory"}


def with_defaults(spec: JobSpec, ranges: Iterable[LimitRange]) -> JobSpec:
    """The job with the default requests of its namespace, where it states none; each is told in its notes."""
    changes: dict[str, Any] = {}
    requests = dict(spec.requests)
    notes = list(spec.notes)
    for limit in _of(spec.namespace, ranges):
        for resource, amount in limit.default_requests.items():
            field = _FIELDS.get(resource)
            stated = requests.get(resource) if field is None else changes.get(field) or getattr(spec, field)
            if stated or not amount or (spec.whole and resource in (GPU, GPU_MEMORY)):
                continue
            if field is None:
                requests[resource] = amount
            else:
                changes[field] = amount
            notes.append(
                f"{resource} {format_quantity(amount, resource=resource)} is the default of LimitRange {limit.name}"
            )
    return replace(spec, **changes, requests=requests, notes=tuple(notes)) if len(notes) > len(spec.notes) else spec


def check_limits(spec: JobSpec, requests: Mapping[str, int], ranges: Iterable[LimitRange]) -> None:
    """`requests` is what one process asks for.  Raises InvalidRequest, with the bound and what would work."""
    for limit in _of(spec.namespace, ranges):
        for resource, least in limit.minimum.items():
            if requests.get(resource, 0) < least:
                raise _outside(limit, resource, requests.get(resource, 0), f"at least {_spell(resource, least)}")
        for resource, most in limit.maximum.items():
            if requests.get(resource, 0) > most:
                raise _outside(limit, resource, requests[resource], f"at most {_spell(resource, most)}")


def check_quotas(
    namespace: str, asked: Mapping[str, int], used: Mapping[str, int], quotas: Iterable[ResourceQuota]
) -> None:
    """`asked` and `used` map resources, and `count/jobs`, to sums over processes and tasks.

    Raises InvalidRequest for what is more than the cap by itself, Conflict for what does not fit beside the others.
    """
    for quota in quotas:
        if quota.namespace != namespace:
            continue
        for key, hard in quota.hard.items():
            resource = key.removeprefix("requests.")
            more, now = asked.get(resource, 0), used.get(resource, 0)
            if not more or more + now <= hard:
                continue
            what = "jobs" if resource == JOBS else resource
            message = (
                f"namespace {namespace} is capped by ResourceQuota {quota.name} at {_spell(resource, hard)} {what}; "
                f"this asks for {_spell(resource, more)}, and {_spell(resource, now)} is used by its live jobs; "
            )
            if more > hard:
                raise InvalidRequest(
                    f"{message}at most {_spell(resource, hard)} can ever be asked for at once",
                    code="ExceedsQuota",
                    field=_FIELDS.get(resource),
                )
            free = max(0, hard - now)
            raise Conflict(
                f"{message}{_spell(resource, free)} would fit now, or wait until some of them have ended",
                code="ExceedsQuota",
            )


def _of(namespace: str, ranges: Iterable[LimitRange]) -> Iterable[LimitRange]:
    return (limit for limit in ranges if limit.namespace == namespace)


def _outside(limit: LimitRange, resource: str, amount: int, bound: str) -> InvalidRequest:
    flag = _FLAGS.get(resource, resource)
    said = f"asks for {_spell(resource, amount)}" if amount else "asks for none"
    return InvalidRequest(
        f"a process {said} of {resource}; LimitRange {limit.name} of namespace {limit.namespace} wants {bound} ({flag})",
        code="OutsideLimitRange",
        field=_FIELDS.get(resource, resource),
    )


def _spell(resource: str, amount: int) -> str:
    return format_quantity(amount, resource=resource)
