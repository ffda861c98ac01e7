"""Prometheus metrics: Kueue's names under `tenure_`, so that its dashboards carry over.  No user-written text in labels."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tenure.control import views
from tenure.control.app import Platform
from tenure.domain.amounts import CPU

__all__ = ["exposition"]

_RESOURCE = ["cohort", "cluster_queue", "flavor", "resource"]
# Kueue counts as inadmissible what cannot be admitted as things are, and as active what its next cycle will look at
_ACTIVE = frozenset({"PendingEvaluation", "Pending", "WaitingForPreemptedWorkloads", ""})


class _Collector:
    """Reads the views when it is asked: a gauge is never older than the scrape."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._queues()
        yield from self._jobs()
        yield from self._cards()

    def _queues(self) -> Iterator[Metric]:
        pending = GaugeMetricFamily(
            "tenure_pending_workloads", "Jobs without quota", labels=["cluster_queue", "status"]
        )
        reasons = GaugeMetricFamily(
            "tenure_unadmitted_workloads", "Jobs without quota, by reason", labels=["cluster_queue", "reason"]
        )
        amounts = {
            "used": GaugeMetricFamily(
                "tenure_cluster_queue_resource_usage", "Quota in use, in base units", labels=_RESOURCE
            ),
            "nominal": GaugeMetricFamily("tenure_cluster_queue_nominal_quota", "Quota owned", labels=_RESOURCE),
            "borrowing_limit": GaugeMetricFamily(
                "tenure_cluster_queue_borrowing_limit", "What may be borrowed", labels=_RESOURCE
            ),
            "borrowed": GaugeMetricFamily("tenure_cluster_queue_borrowed", "Quota borrowed now", labels=_RESOURCE),
        }
        status = GaugeMetricFamily(
            "tenure_cluster_queue_status", "1 for the status that it has", labels=["cluster_queue", "status"]
        )
        for queue in views.queues(self.platform):
            name: str = queue["name"]
            counted: dict[str, int] = {}
            for job in queue["jobs"]:
                counted[job["reason"]] = counted.get(job["reason"], 0) + 1
            active = sum(number for reason, number in counted.items() if reason in _ACTIVE)
            pending.add_metric([name, "active"], active)
            pending.add_metric([name, "inadmissible"], queue["pending"] - active)
            for reason, number in sorted(counted.items()):
                reasons.add_metric([name, reason or "PendingEvaluation"], number)
            stopped = queue["stop_policy"] != "None"
            status.add_metric([name, "active"], 0 if stopped else 1)
            status.add_metric([name, "terminating"], 1 if stopped else 0)
            for part in queue["resources"]:
                scale = 1000 if part["resource"] == CPU else 1
                for key, family in amounts.items():
                    if part[key] is not None:
                        family.add_metric(
                            [queue["cohort"] or "", name, part["flavor"], part["resource"]], part[key] / scale
                        )
        yield from (pending, reasons, status, *amounts.values())

    def _jobs(self) -> Iterator[Metric]:
        counts = views.counts(self.platform)
        holding = GaugeMetricFamily(
            "tenure_admitted_active_workloads", "Jobs that hold quota, by state", labels=["state"]
        )
        for state in ("admitted", "running", "evicting", "cancelling"):
            holding.add_metric([state], counts.get(state, 0))
        ended = CounterMetricFamily("tenure_finished_workloads", "Jobs that have ended, by outcome", labels=["outcome"])
        for key, number in sorted(counts.items()):
            if key.startswith("ended/"):
                ended.add_metric([key.partition("/")[2]], number)
        yield from (holding, ended)

    def _cards(self) -> Iterator[Metric]:
        labels = ["card", "source"]
        shares = GaugeMetricFamily("tenure_card_shares", "Shares of a card", labels=[*labels, "held"])
        memory = GaugeMetricFamily(
            "tenure_card_memory_declared_bytes", "Card memory that holders declared", labels=labels
        )
        total = GaugeMetricFamily("tenure_card_memory_bytes", "Card memory there is", labels=labels)
        measured = GaugeMetricFamily(
            "tenure_card_memory_measured_bytes", "Card memory in use, as measured", labels=labels
        )
        for card in views.cards(self.platform):
            who = [card["id"], card["source"]]
            shares.add_metric([*who, "yes"], card["shares"] - card["shares_free"])
            shares.add_metric([*who, "no"], card["shares_free"])
            memory.add_metric(who, card["memory_declared"])
            total.add_metric(who, card["memory"])
            if card["memory_measured"] is not None:
                measured.add_metric(who, card["memory_measured"])
        yield from (shares, memory, total, measured)


def exposition(platform: Platform) -> bytes:
    """What there is to say now, in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(platform))
    return generate_latest(registry)
