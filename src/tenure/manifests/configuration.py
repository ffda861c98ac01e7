"""Kueue's Configuration: the keys that change decisions are read, every other known key is named as without effect."""

from __future__ import annotations

from dataclasses import dataclass

from tenure.domain.policy import FairSharing, QuotaCheckStrategy, ShareStrategy, Transformation, WaitForPodsReady

from .kinds import Header, Kind
from .scalars import AmountText, Choice, Duration, Flag, Number, Text, amount_at
from .schema import Field, ListOf, MapOf, Object, Record, Unread
from .shapes import RESOURCE

__all__ = ["CONFIGURATION", "Configuration"]

_GROUP = "config.kueue.x-k8s.io"
_WITHOUT_EFFECT = (
    "health", "metrics", "webhook", "leaderElection", "controller", "namespace", "manageJobsWithoutQueueName",
    "managedJobsNamespaceSelector", "internalCertManagement", "clientConnection", "integrations", "queueVisibility",
    "multiKueue", "admissionFairSharing", "objectRetentionPolicies", "featureGates", "tls", "pprofBindAddress",
    "visibilityServer", "cacheNamespace", "gracefulShutDown", "syncPeriod",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What a Configuration says about decisions."""

    fair_sharing: FairSharing | None = None
    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    quota_check: QuotaCheckStrategy = QuotaCheckStrategy.BLOCK_UNDECLARED
    wait_for_pods_ready: WaitForPodsReady | None = None


_FAIR_SHARING = Object(
    {
        "enable": Flag(),
        "preemptionStrategies": ListOf(item=Choice(tuple(s.value for s in ShareStrategy)), unique=True),
    }
)
_RESOURCES = Object(
    {
        "excludeResourcePrefixes": ListOf(item=Text(), unique=True),
        "transformations": ListOf(
            item=Object(
                {
                    "input": Field(RESOURCE, required=True),
                    "strategy": Choice(("Retain", "Replace")),
                    "multiplyBy": RESOURCE,
                    "outputs": MapOf(key=RESOURCE, value_of=lambda _: AmountText()),
                }
            )
        ),
        "quotaCheckStrategy": Choice(("BlockUndeclared", "IgnoreUndeclared")),
        "deviceClassMappings": Unread("has no effect: there are no device claims on one machine"),
    }
)
_SECONDS = Number(low=0)
_WAIT = Object(
    {
        "enable": Flag(),
        "timeout": Duration(),
        "blockAdmission": Flag(),
        "recoveryTimeout": Unread("has no effect: a process that has ended does not become ready again"),
        "requeuingStrategy": Object(
            {
                "timestamp": Choice(("Eviction", "Creation")),
                "backoffLimitCount": _SECONDS,
                "backoffBaseSeconds": _SECONDS,
                "backoffMaxSeconds": _SECONDS,
            }
        ),
    }
)


def _configuration(_: Header, record: Record) -> Configuration:
    resources = record.record("resources")
    return Configuration(
        fair_sharing=_fair_sharing(record),
        exclude_resource_prefixes=tuple(resources.get("excludeResourcePrefixes") or ()),
        transformations=_transformations(resources),
        quota_check=QuotaCheckStrategy(resources.get("quotaCheckStrategy", "BlockUndeclared")),
        wait_for_pods_ready=_wait(record),
    )


def _fair_sharing(record: Record) -> FairSharing | None:
    """Present = fair sharing everywhere.  Strategies: either one alone, or both in their order."""
    sharing = record.get("fairSharing")
    if sharing is None or sharing.get("enable") is False:
        return None
    names = [ShareStrategy(name) for name in sharing.get("preemptionStrategies") or ()]
    if not names:
        return FairSharing()
    both = list(FairSharing().preemption_strategies)
    if len(names) == 2 and names != both:
        sharing.at("preemptionStrategies").error(f"both together work only in the order {', '.join(both)}")
    return FairSharing(preemption_strategies=tuple(names))


def _transformations(resources: Record) -> tuple[Transformation, ...]:
    made: list[Transformation] = []
    for item in resources.get("transformations") or ():
        name = item.get("input", "")
        if any(t.input == name for t in made):
            item.at("input").error(f"{name} is transformed twice; write one transformation with all outputs")
        outputs = item.get("outputs")
        for key, text in (outputs or {}).items():
            amount_at(text, outputs.spots[key], resource=key)
        if item.given("multiplyBy") and item.get("multiplyBy") == name:
            item.at("multiplyBy").error("is the input itself; name another resource")
        made.append(
            Transformation(
                input=name,
                replace=item.get("strategy") == "Replace",
                multiply_by=item.get("multiplyBy"),
                outputs=dict(outputs or {}),
            )
        )
    return tuple(made)


def _wait(record: Record) -> WaitForPodsReady | None:
    wait = record.get("waitForPodsReady")
    if wait is None or wait.get("enable") is False:
        return None
    if wait.get("blockAdmission"):
        wait.at("blockAdmission").warn("has no effect on one machine: others are admitted while one starts")
    requeuing = wait.record("requeuingStrategy")
    base, most = requeuing.get("backoffBaseSeconds", 60), requeuing.get("backoffMaxSeconds", 3600)
    timeout = wait.get("timeout", 1800.0)
    if wait.given("timeout") and timeout <= 0:
        wait.at("timeout").error("must be more than 0; 5m would work")
    return WaitForPodsReady(
        timeout_s=timeout,
        backoff_base_s=float(base),
        backoff_max_s=float(most),
        backoff_limit_count=requeuing.get("backoffLimitCount"),
        requeuing_timestamp=requeuing.get("timestamp", "Eviction"),
    )


CONFIGURATION = Kind(
    name="Configuration",
    versions=(f"{_GROUP}/v1beta2", f"{_GROUP}/v1beta1"),
    fields={
        **{key: Unread() for key in _WITHOUT_EFFECT},
        "fairSharing": _FAIR_SHARING,
        "resources": _RESOURCES,
        "waitForPodsReady": _WAIT,
    },
    build=_configuration,
    named=False,
)
