"""What the controller knows, for Prometheus.

For: the metrics and the HTTP port that they are read from. Not for: counting (the books, the gate and the
refusals do). Values are read from the controller's own loop when somebody scrapes, so they fit together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from testbed.containers.remote.controller import Controller
from testbed.containers.remote.ledger import LARGE_BYTES, LARGE_CORES
from twinbed import BackendError

LATENCY_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_SCRAPE_TIMEOUT_S = 5.0
_CONTAINER = ("application", "agent", "container")


class Latency:
    """The histogram of decision latencies, in a registry of its own (that of the metrics)."""

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
        """Nothing in advance: registering must not wait for a loop that does not run yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """As Prometheus wants it; called from its HTTP server's thread."""

        async def read() -> list[Metric]:
            return [
                *_containers(self._controller),
                *_applications(self._controller),
                *_counts(self._controller),
            ]

        yield from asyncio.run_coroutine_threadsafe(read(), self._loop).result(_SCRAPE_TIMEOUT_S)


def serve(registry: CollectorRegistry, host: str, port: int) -> Callable[[], None]:
    """Answers GET /metrics in a thread; returns what ends it. Raises BackendError."""
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
    names = [member.name for member in books.deployment.applications]
    quota = GaugeMetricFamily("twinbed_container_cpu_limit_cores", "CPU limit decided.", labels=_CONTAINER)
    limit = GaugeMetricFamily(
        "twinbed_container_memory_limit_bytes", "Memory limit decided.", labels=_CONTAINER
    )
    usage = GaugeMetricFamily("twinbed_container_cpu_usage_cores", "In the last period.", labels=_CONTAINER)
    memory = GaugeMetricFamily("twinbed_container_memory_usage_bytes", "At its end.", labels=_CONTAINER)
    throttled = CounterMetricFamily("twinbed_container_throttled_periods", "Throttled in.", labels=_CONTAINER)
    seconds = CounterMetricFamily("twinbed_container_throttled_seconds", "Throttled for.", labels=_CONTAINER)
    for member in books.members.values():
        labels = (names[member.app], member.agent, member.name)
        quota.add_metric(labels, _or_infinity(books.cpu.wanted(member.id), LARGE_CORES))
        limit.add_metric(labels, _or_infinity(books.memory.wanted(member.id), LARGE_BYTES))
        usage.add_metric(labels, member.usage_cores)
        memory.add_metric(labels, member.memory_bytes)
        throttled.add_metric(labels, member.throttled_periods)
        seconds.add_metric(labels, member.throttled_s)
    return [quota, limit, usage, memory, throttled, seconds]


def _applications(controller: Controller) -> list[Metric]:
    books = controller.books
    free = GaugeMetricFamily(
        "twinbed_pool_cpu_cores", "Of the global limit, in no container's.", labels=["application"]
    )
    room = GaugeMetricFamily(
        "twinbed_pool_memory_bytes", "Of the global limit, in no container's.", labels=["application"]
    )
    for app, application in enumerate(books.deployment.applications):
        free.add_metric([application.name], application.cpu_limit_cores - books.cpu.bound(app))
        room.add_metric([application.name], application.memory_limit_bytes - books.memory.bound(app))
    return [free, room]


def _counts(controller: Controller) -> list[Metric]:
    books, gate = controller.books, controller.gate
    agents = GaugeMetricFamily("twinbed_agents", "Agents by state.", labels=["state"])
    up = sum(agent.live for agent in books.agents.values())
    agents.add_metric(["up"], up)
    agents.add_metric(["lost"], len(books.agents) - up)
    agents.add_metric(["awaited"], len(books.deployment.agents - books.agents.keys()))
    refused = CounterMetricFamily("twinbed_refused", "What was not let in.", labels=["kind"])
    for kind, count in sorted(controller.refusals.counts.items()):
        refused.add_metric([kind], count)
    plain = {
        "twinbed_agents_lost": ("Times that an agent was lost.", books.agents_lost),
        "twinbed_datagrams_received": ("Telemetry datagrams accepted.", gate.received),
        "twinbed_datagrams_lost": ("Telemetry datagrams missing.", gate.lost),
        "twinbed_telemetry_bytes": ("Of all datagrams that came.", controller.telemetry_bytes),
        "twinbed_records": ("Period records handed to the policy.", books.reports),
        "twinbed_records_stale": ("Records older than the last.", books.stale),
        "twinbed_limit_changes": ("Limits decided.", books.limit_changes),
        "twinbed_oom_grants": ("Held containers given memory.", books.oom_grants),
        "twinbed_oom_kills": ("Containers left to the OOM killer.", books.kills),
        "twinbed_oom_kills_withheld": ("Not left to it, an agent being lost.", books.kills_withheld),
    }
    counters = []
    for name, (text, count) in plain.items():
        counter = CounterMetricFamily(name, text)
        counter.add_metric([], count)
        counters.append(counter)
    return [agents, refused, *counters]


def _or_infinity(value: float, large: float) -> float:
    return float("inf") if value >= large else value
