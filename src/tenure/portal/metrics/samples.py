"""Samples being gathered for one scrape, checked against the table: an unknown name or a wrong label is a bug at once."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from tenure.domain.tally import Tally

from .families import BY_NAME, FAMILIES, Family

__all__ = ["Samples"]


class Samples:
    """One scrape's worth.  Label values are given in the order of the table."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def add(self, name: str, value: float, *labels: str) -> None:
        """A counter or a gauge."""
        family = BY_NAME[name]
        assert len(labels) == len(family.labels), (name, labels)
        metric = self._metrics.get(name)
        if metric is None:
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = self._metrics[name] = kind(_bare(family), family.help, labels=family.labels)
        assert isinstance(metric, (CounterMetricFamily, GaugeMetricFamily)), name
        metric.add_metric(labels, value)

    def spread(self, name: str, tally: Tally, *labels: str) -> None:
        """A histogram."""
        family = BY_NAME[name]
        assert len(labels) == len(family.labels), (name, labels)
        metric = self._metrics.get(name)
        if metric is None:
            metric = self._metrics[name] = HistogramMetricFamily(name, family.help, labels=family.labels)
        assert isinstance(metric, HistogramMetricFamily), name
        buckets = [(_bound(bound), count) for bound, count in tally.cumulative()]
        metric.add_metric(labels, buckets, sum_value=tally.seconds)

    def __iter__(self) -> Iterator[Metric]:
        """In the order of the table, whatever the order in which they came."""
        return (self._metrics[family.name] for family in FAMILIES if family.name in self._metrics)


def _bound(seconds: float) -> str:
    return "+Inf" if seconds == float("inf") else str(seconds)


def _bare(family: Family) -> str:
    """The client adds `_total` to the name of a counter by itself."""
    return family.name.removesuffix("_total") if family.kind == "counter" else family.name
