"""Read values for the metrics of the table, in the loop of the program that has them.

For: making Prometheus' metric families from the table's entries, and reading all values at one moment, so
that they are consistent. Not for: the port (serving.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from testbed.containers.exporting.table import TABLE
from twinbed import BackendError

BUCKETS_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Bounds of the histograms' buckets, s: from one write of a file to far more than a CFS period."""

# Otherwise each histogram would export its creation time as a further series, whose name is not in the table.
disable_created_metrics()  # type: ignore[no-untyped-call]

_WAIT_S = 5.0
"""Longest wait for the loop, s: Prometheus itself gives up after 10 s."""


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one metric at one moment.

    name: name of a metric in the table
    values: value of each series
    labels: label values of each series, in the table's order
    """

    name: str
    values: Sequence[float] | NDArray[Any]
    labels: Sequence[tuple[str, ...]] = ((),)


def plain(values: dict[str, float], labels: tuple[str, ...] = ()) -> list[Series]:
    """Return one series for each of these metrics, all with the same labels."""
    return [Series(name, (value,), (labels,)) for name, value in values.items()]


def histogram(
    name: str, registry: CollectorRegistry, labels: tuple[str, ...] = ()
) -> Callable[[float], None]:
    """Register a histogram of the table. Returns a function that takes one more value, s."""
    metric = TABLE[name]
    made = Histogram(name, metric.meaning, metric.labels, buckets=BUCKETS_S, registry=registry)
    return (made.labels(*labels) if labels else made).observe


class Reader(Collector):
    """Calls `read` in a thread of the port at each scrape of Prometheus. Register it with the served
    registry."""

    def __init__(self, read: Callable[[], list[Series]]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Return no metric in advance, because registering must not wait for a loop that does not run yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        for series in self._readings():
            yield _family(series)

    def _readings(self) -> list[Series]:
        return self._read()


class LoopReader(Reader):
    """Calls `read` in the program's loop instead. Only the values are read there.

    Raises BackendError on a scrape when the loop does not answer in time.
    """

    def __init__(self, read: Callable[[], list[Series]], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(read)
        self._loop = loop

    def _readings(self) -> list[Series]:
        async def read() -> list[Series]:
            return self._read()

        future = asyncio.run_coroutine_threadsafe(read(), self._loop)
        try:
            return future.result(_WAIT_S)
        except (TimeoutError, FutureTimeoutError):
            future.cancel()
            raise BackendError(f"no figures within {_WAIT_S:g} s: the program is busy") from None


def _family(series: Series) -> Metric:
    metric = TABLE[series.name]
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.meaning, labels=metric.labels)
    values = series.values if isinstance(series.values, Sequence) else series.values.tolist()
    for labels, value in zip(series.labels, values, strict=True):
        family.add_metric(labels, value)
    return family
