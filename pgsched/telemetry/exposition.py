"""Snapshots of metrics in Prometheus's format. Only this module uses prometheus_client (the extra `metrics`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from pgsched.control_characters import escape_controls
from pgsched.telemetry.catalogue import METRICS
from pgsched.telemetry.catalogue import Metric as Described
from pgsched.telemetry.metrics import Sample

Snapshots = Mapping[str, Iterable[Sample]]  # by number of the process (--processes), "" for a single one


class Collector:
    """A collector that gives prometheus_client the snapshots of one scrape."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterator[Metric]:
        """Yield each metric that has samples, in the order of the catalogue."""
        found: dict[str, list[tuple[list[str], Any]]] = {}
        several = any(self._snapshots)
        for process, samples in self._snapshots.items():
            for name, labels, value in samples:
                shown = [escape_controls(label) for label in labels]  # others chose these names
                found.setdefault(name, []).append(([*shown, process] if several else shown, value))
        for metric in METRICS:
            if metric.name in found:
                yield family(metric, (*metric.labels, "process") if several else metric.labels, found[metric.name])


def family(metric: Described, labels: Sequence[str], samples: Iterable[tuple[list[str], Any]]) -> Metric:
    """Return one metric with its samples."""
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.meaning, labels=labels)
        for values, (counts, total) in samples:
            names = [*(str(bound) for bound in metric.buckets), "+Inf"]
            histogram.add_metric(values, list(zip(names, accumulate(counts), strict=True)), total)
        return histogram
    kind: Any = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    plain: Any = kind(metric.name, metric.meaning, labels=labels)
    for values, value in samples:
        plain.add_metric(values, value)
    found: Metric = plain
    return found


def page(snapshots: Snapshots, accept: str) -> tuple[bytes, str]:
    """Return the answer to a scrape, and its content type. `accept`: the request's Accept header."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(snapshots))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    encode, kind = choose_encoder(accept)
    return encode(registry), kind
