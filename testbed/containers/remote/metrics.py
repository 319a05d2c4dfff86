"""The controller's metrics for Prometheus.

For: the metrics, and the HTTP port at which they are read. Not for: counting, which the books, the gate and
the refusals do. Values are read in the controller's own loop when they are scraped, so they fit together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from prometheus_client import CollectorRegistry, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from testbed.containers.remote.controller import Controller
from testbed.containers.remote.ledger import LARGE_BYTES, LARGE_CORES
from twinbed import BackendError

LATENCY_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_SCRAPE_TIMEOUT_S = 5.0
_LABELS = ("application", "agent", "container")


class Latency:
    """The histogram of decision latencies, in a registry of its own, which is that of all metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        histogram = Histogram(
            "twinbed_decision_latency_seconds",
            "From an agent's sending a record to its having written the last limit that came of it.",
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.observe: Callable[[float], None] = histogram.observe


class ControllerMetrics(Collector):
    """Reads a controller in its own loop. Register it with the registry that is served."""

    def __init__(self, controller: Controller, loop: asyncio.AbstractEventLoop) -> None:
        self._controller = controller
        self._loop = loop

    def describe(self) -> Iterable[Metric]:
        """Return nothing in advance: registering must not wait for a loop that does not run yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return the metrics. Prometheus's HTTP server calls this from its thread."""

        async def read() -> list[Metric]:
            return [
                *_containers(self._controller),
                *_applications(self._controller),
                *_counts(self._controller),
            ]

        yield from asyncio.run_coroutine_threadsafe(read(), self._loop).result(_SCRAPE_TIMEOUT_S)


def serve(registry: CollectorRegistry, host: str, port: int) -> Callable[[], None]:
    """Answer GET /metrics in a thread; return a function that ends it. Raises BackendError."""
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise BackendError(
            f"{host}:{port}: metrics cannot be served there ({error.strerror}); choose another --metrics"
        ) from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


def _containers(controller: Controller) -> list[Metric]:
    books = controller.books
    kinds: list[tuple[type[GaugeMetricFamily | CounterMetricFamily], str, str]] = [
        (GaugeMetricFamily, "cpu_limit_cores", "CPU limit decided."),
        (GaugeMetricFamily, "memory_limit_bytes", "Memory limit decided."),
        (GaugeMetricFamily, "cpu_usage_cores", "CPU used in the last period."),
        (GaugeMetricFamily, "memory_usage_bytes", "Memory at the end of the last period."),
        (CounterMetricFamily, "throttled_periods", "Periods in which it was throttled."),
        (CounterMetricFamily, "throttled_seconds", "Time for which it was throttled."),
    ]
    families = [kind(f"twinbed_container_{name}", text, labels=_LABELS) for kind, name, text in kinds]
    members = list(books.members.values())
    ids = np.array([member.id for member in members], np.int64)
    cores, sizes = books.cpu.wanted(ids), books.memory.wanted(ids)
    columns = (
        np.where(cores < LARGE_CORES, cores, np.inf),
        np.where(sizes < LARGE_BYTES, sizes, np.inf),
        books.latest.usage_cores(ids),
        books.latest.memory_bytes(ids),
        books.latest.throttled_periods(ids),
        books.latest.throttled_s(ids),
    )
    for family, column in zip(families, columns, strict=True):
        for member, value in zip(members, column.tolist(), strict=True):
            application = books.deployment.applications[member.app].name
            family.add_metric((application, member.agent, member.name), value)
    return [*families]


def _applications(controller: Controller) -> list[Metric]:
    books = controller.books
    cpu = GaugeMetricFamily("twinbed_pool_cpu_cores", "CPU of no container.", labels=["application"])
    memory = GaugeMetricFamily("twinbed_pool_memory_bytes", "Memory of no container.", labels=["application"])
    bounds = zip(books.cpu.bounds().tolist(), books.memory.bounds().tolist(), strict=True)
    for application, (cores, size) in zip(books.deployment.applications, bounds, strict=True):
        cpu.add_metric([application.name], application.cpu_limit_cores - cores)
        memory.add_metric([application.name], application.memory_limit_bytes - size)
    return [cpu, memory]


def _counts(controller: Controller) -> list[Metric]:
    books, gate = controller.books, controller.gate
    agents = GaugeMetricFamily("twinbed_agents", "Agents by state.", labels=["state"])
    up = sum(agent.live for agent in books.agents.values())
    agents.add_metric(["up"], up)
    agents.add_metric(["lost"], len(books.agents) - up)
    agents.add_metric(["awaited"], len(books.deployment.agents - books.agents.keys()))
    refused = CounterMetricFamily("twinbed_refused", "Messages and connections refused.", labels=["kind"])
    for kind, count in sorted(controller.refusals.counts.items()):
        refused.add_metric([kind], count)
    plain = {
        "agents_lost": ("Times that an agent was lost.", books.agents_lost),
        "datagrams_received": ("Telemetry datagrams accepted.", gate.received),
        "datagrams_lost": ("Telemetry datagrams missing.", gate.lost),
        "telemetry_bytes": ("Bytes of all datagrams that came.", controller.telemetry_bytes),
        "records": ("Period records handed to the policy.", books.reports),
        "records_unlimited": (
            "Records of containers that lack their CPU limit, not decided on.",
            books.unlimited,
        ),
        "records_stale": ("Records older than their container's last.", books.stale),
        "limit_changes": ("Limits decided.", books.limit_changes),
        "oom_grants": ("Held containers given memory.", books.oom_grants),
        "oom_kills": ("Containers killed for want of memory.", books.kills),
        "oom_kills_withheld": ("Kills withheld because an agent is lost.", books.kills_withheld),
    }
    counters = [CounterMetricFamily(f"twinbed_{name}", text, value) for name, (text, value) in plain.items()]
    return [agents, refused, *counters]
