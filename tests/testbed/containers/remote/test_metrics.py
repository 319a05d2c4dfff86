"""The figures of a controller and of agents: which there are, what they say, and how many series they are."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from testbed.containers.exporting.reading import LoopReader, histogram
from testbed.containers.exporting.table import TABLE, of
from testbed.containers.remote import metrics
from testbed.containers.remote.agent import Agent
from testbed.containers.remote.controller import Controller
from testbed.containers.remote.metrics import of_agent, of_controller
from testbed.containers.remote.refusals import KINDS
from tests.testbed.containers.remote.cluster import cluster, deployment, until


async def samples(read: Callable[[], Any]) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return what Prometheus would see, by name and the labels' values."""
    registry = CollectorRegistry()
    registry.register(LoopReader(read, asyncio.get_running_loop()))
    families = await asyncio.to_thread(lambda: list(registry.collect()))
    seen = {}
    for family in families:
        for sample in family.samples:
            assert tuple(sample.labels) == TABLE[sample.name].labels
            seen[sample.name, tuple(sample.labels.values())] = sample.value
    return seen


def names(program: str) -> set[str]:
    return {metric.name for metric in of(program) if metric.kind != "histogram"}


@pytest.mark.slow
async def test_controller_and_agents_export_all_of_the_table_and_agree(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment()) as here:
        controller, _ = await here.controller()
        here.hosts["a0"].use_cores["a0-c0"] = 5.0
        agent, running = here.agent("a0")
        agents = [agent, here.agent("a1")[0]]
        took_s: list[float] = []
        agent.hosting.on_quota = took_s.append
        key = ("shop", "a0", "a0-c0")
        await until(lambda: throttled(controller), "throttling")
        seen = await samples(lambda: of_controller(controller))
        own = await samples(lambda: of_agent(agent))
        assert {name for name, _ in seen} == names("controller")
        assert {name for name, _ in own} == names("agent")
        assert seen["twinbed_agents", ("up",)] == 2
        assert seen["twinbed_agent_up", ("a0",)] == own["twinbed_agent_connected", ("a0",)] == 1
        assert seen["twinbed_application_cpu_limit_cores", ("shop",)] == 4
        assert 0 < seen["twinbed_container_cpu_limit_cores", key] < math.inf
        periods, stopped = (
            seen[f"twinbed_container_{name}_total", key] for name in ("periods", "throttled_periods")
        )
        assert 0 < stopped <= periods
        refused = {labels: value for (name, labels), value in seen.items() if name == "twinbed_refused_total"}
        assert refused.keys() == {(kind,) for kind in KINDS}
        assert min(refused.values()) >= 0
        assert own["twinbed_agent_containers", ("a0", "up")] == 2
        assert (
            own["twinbed_agent_records_sent_total", ("a0",)]
            >= own["twinbed_agent_datagrams_sent_total", ("a0",)]
            > 0
        )
        assert own["twinbed_agent_orders_total", ("a0",)] > 0
        assert took_s
        await until(lambda: came(controller) == sent(agents), "all that was sent")
        await running.kill()
        await until(lambda: not controller.books.agents["a0"].live, "lost")
        seen = await samples(lambda: of_controller(controller))
        assert seen["twinbed_agent_up", ("a0",)] == 0
        assert seen["twinbed_agents_lost_total", ()] == 1


def came(controller: Controller) -> tuple[int, int]:
    """Return the number and the bytes of the datagrams that came, also those of a call that had ended."""
    return controller.gate.received + controller.refusals.counts["foreign"], controller.telemetry_bytes


def sent(agents: list[Agent]) -> tuple[int, int]:
    figures = [agent.figures for agent in agents]
    return sum(each.datagrams for each in figures), sum(each.telemetry_bytes for each in figures)


def throttled(controller: Controller) -> bool:
    ids = np.array(list(controller.books.members), np.int64)
    return bool(controller.books.latest.throttled_s(ids).any())


async def test_held_containers_and_grants_are_counted(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment(agents=1)) as here:
        controller, _ = await here.controller()
        agent, _ = here.agent("a0")
        await until(lambda: controller.books.reports > 0, "telemetry")
        group = here.hosts["a0"].place.groups["a0-c0"]
        await until(lambda: group.armed is not None, "its trap")
        await until(lambda: bool(agent.hosting.events["grant"] >= 2 or group.armed.hold()), "two grants")
        own = await samples(lambda: of_agent(agent))
        assert own["twinbed_agent_oom_held_total", ("a0",)] >= 2
        assert own["twinbed_agent_oom_grants_total", ("a0",)] >= 2
        assert own["twinbed_agent_oom_kills_total", ("a0",)] == 0
        assert own["twinbed_agent_writes_refused_total", ("a0",)] == 0
        group.refuses = True
        group.armed.hold()
        await until(lambda: agent.hosting.events["refused"] > 0, "a write was refused")
        own = await samples(lambda: of_agent(agent))
        assert own["twinbed_agent_writes_refused_total", ("a0",)] > 0


async def test_the_number_of_series_is_bounded(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(metrics, "MOST_LISTED", 3)
    async with cluster(tmp_path, deployment(agents=1, each=8)) as here:
        controller, _ = await here.controller()
        here.agent("a0")
        await until(lambda: len(controller.books.members) == 8, "members")
        seen = await samples(lambda: of_controller(controller))
        assert sum(name == "twinbed_container_periods_total" for name, _ in seen) == 3
        assert seen["twinbed_containers_unlisted", ()] == 5


async def test_no_limit_is_an_infinite_one(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment(agents=1, each=1), "unlimited") as here:
        controller, _ = await here.controller()
        here.agent("a0")
        await until(lambda: len(controller.books.members) == 1, "joined")
        seen = await samples(lambda: of_controller(controller))
        for name in ("cpu_limit_cores", "memory_limit_bytes"):
            assert seen[f"twinbed_container_{name}", ("shop", "a0", "a0-c0")] == math.inf


def test_the_histograms_of_the_table_can_be_made() -> None:
    registry = CollectorRegistry()
    for metric in TABLE.values():
        if metric.kind == "histogram":
            histogram(metric.name, registry, tuple("x" for _ in metric.labels))(0.001)
    ends = ("_bucket", "_count", "_sum")
    assert all(sample.name.endswith(ends) for family in registry.collect() for sample in family.samples)
    counts = {
        sample.name: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name.endswith("_count")
    }
    assert set(counts.values()) == {1.0}
    assert len(counts) == sum(metric.kind == "histogram" for metric in TABLE.values())
