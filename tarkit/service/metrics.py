"""The counts of a service for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tarkit.errors import library
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.leases import Verdict

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_GAUGES = {
    "epoch": ("epoch", "Epochs that have begun."),
    "epochs": ("epochs", "Epochs of the data set; 0 is without an end."),
    "todo": ("shards_todo", "Shards of the epochs that have begun, not handed out or come back."),
    "leased": ("shards_leased", "Shards that workers hold."),
    "done": ("shards_done", "Shards that are done, of the epochs that have begun."),
    "dead": ("shards_dead", "Shards that are not tried any more."),
    "records": ("records_done", "Records that are done, of all epochs."),
    "ended": ("ended", "1 when no shard is left, and none is with a worker."),
}
"""Field of DataSetProgress -> name of the metric, and what it is."""


class Metrics:
    """``text()`` is what ``/metrics`` answers. MissingExtraError: prometheus-client is not installed."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        client = library("prometheus_client", "the HTTP port of the shard service", "service")
        core = library("prometheus_client.core", "the HTTP port of the shard service", "service")
        self._dispatcher = dispatcher
        self._gauge, self._counter = core.GaugeMetricFamily, core.CounterMetricFamily
        self._generate = client.generate_latest
        self._registry = client.CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        made: bytes = self._generate(self._registry)
        return made

    def collect(self) -> Iterator[Any]:
        """What the library asks for: families of metrics."""
        dispatcher = self._dispatcher
        progress = [ledger.progress() for ledger in dispatcher.ledgers.values()]
        for field, (name, text) in _GAUGES.items():
            family = self._gauge(f"tarkit_{name}", text, labels=["dataset"])
            for each in progress:
                family.add_metric([each.name], float(getattr(each, field)))
            yield family
        reports = self._counter("tarkit_reports", "Reports of workers, by what became of them.", labels=["verdict"])
        for verdict in Verdict:
            reports.add_metric([verdict.value], dispatcher.verdicts[verdict.value])
        yield reports
        yield self._counter(
            "tarkit_differing_declarations", "Declarations that differed from the first.", dispatcher.differing
        )
        yield self._gauge("tarkit_held_calls", "Calls that wait for a shard or the end.", dispatcher.held.number)
        yield self._gauge("tarkit_workers", "Workers that were heard of, and not lost.", len(dispatcher.presence.seen))
        yield self._gauge(
            "tarkit_state_writable", "0 while the state cannot be written.", float(dispatcher.trouble is None)
        )
