"""One scrape: the counters, the gauges and the house itself, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

import tenure
from tenure.control.app import Platform

from .follower import Follower
from .gauges import Gauges
from .samples import Samples

__all__ = ["Metrics"]


class Metrics:
    """The metrics of one platform.  `start` once the platform runs, `stop` before it is forgotten."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._follower, self._gauges = Follower(platform), Gauges(platform)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(self))
        ProcessCollector(registry=self._registry)

    def start(self) -> None:
        self._follower.start()

    def stop(self) -> None:
        self._follower.stop()

    def exposition(self) -> bytes:
        """What there is to say now.  Answers also while the loop hangs or the ledger cannot be read."""
        return generate_latest(self._registry)

    def samples(self) -> Samples:
        samples = Samples()
        policy = self._platform.policy.current
        classes = {"", *policy.workload_priority_classes, *policy.priority_classes}
        cohorts = self._gauges.queues_below(policy)
        cards = [str(card.id) for card in self._platform.cards]
        self._follower.collect(
            samples, queues=policy.cluster_queues, classes=sorted(classes), cards=cards, cohorts=cohorts
        )
        self._gauges.collect(samples, xids=self._follower.xids())
        self._house(samples)
        return samples

    def _house(self, samples: Samples) -> None:
        conductor = self._platform.conductor
        pulse = conductor.pulse
        for result, tally in (("success", pulse.admitted), ("inadmissible", pulse.inadmissible)):
            samples.add("tenure_admission_attempts_total", tally.count, result)
            samples.spread("tenure_admission_attempt_duration_seconds", tally, result)
        samples.spread("tenure_conductor_step_duration_seconds", pulse.steps)
        samples.add("tenure_conductor_last_step_seconds", pulse.silent_s)
        samples.add("tenure_conductor_faults_total", conductor.faults)
        for durable, tally in self._platform.ledger.commits.items():
            samples.spread("tenure_ledger_commit_duration_seconds", tally, str(durable).lower())
        samples.add("tenure_backend_up", self._platform.backend.probe().ok)
        samples.add("tenure_start_time_seconds", self._platform.started_at / 1e6)
        samples.add("tenure_build_info", 1, tenure.__version__)


class _Collector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics.samples()
