"""The figures of a controller and of an agent, as series of the table of metrics.

For: the value of each metric. Not for: counting (the books, the gate, the refusals and the agent count), nor
names and meanings (exporting/table.py). Functions here are called in the loop of the program, so their
results are consistent.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np

from testbed.containers.exporting.reading import Series, plain
from testbed.containers.host.life import State
from testbed.containers.remote.agent import Agent
from testbed.containers.remote.controller import Controller
from testbed.containers.remote.ledger import LARGE_BYTES, LARGE_CORES
from testbed.containers.remote.refusals import KINDS

MOST_LISTED = 10_000
"""Largest number of containers with series of their own. More would make every scrape slow."""


def of_controller(controller: Controller) -> list[Series]:
    """Return the series of every metric of the controller except its histogram."""
    return [*_containers(controller), *_applications(controller), *_agents(controller), *_counts(controller)]


def of_agent(agent: Agent) -> list[Series]:
    """Return the series of every metric of the agent except its histograms."""
    figures, hosting = agent.figures, agent.hosting
    executor, events, own = hosting.executor, hosting.events, (agent.name,)
    states = Counter(container.state for container in hosting.containers.values())
    values = {
        "connected": agent.connected,
        "sessions_total": figures.sessions,
        "records_sent_total": figures.records,
        "datagrams_sent_total": figures.datagrams,
        "datagrams_dropped_total": figures.dropped,
        "telemetry_bytes_total": figures.telemetry_bytes,
        "periods_unread_total": agent.source.lost,
        "late_readings_total": figures.late,
        "orders_total": figures.orders,
        "limit_changes_total": executor.limit_changes,
        "writes_refused_total": events["refused"],
        "oom_held_total": executor.holds,
        "oom_grants_total": events["grant"],
        "oom_kills_total": events["oom"],
        "restarts_total": events["restart"],
    }
    return [
        Series(
            "twinbed_agent_containers",
            [states[state] for state in State],
            [(agent.name, state.name.lower()) for state in State],
        ),
        *plain({f"twinbed_agent_{name}": value for name, value in values.items()}, own),
    ]


def _containers(controller: Controller) -> list[Series]:
    books = controller.books
    members = list(islice(books.members.values(), MOST_LISTED))
    names = [application.name for application in books.deployment.applications]
    labels = [(names[member.app], member.agent, member.name) for member in members]
    ids = np.array([member.id for member in members], np.int64)
    cores, sizes = books.cpu.wanted(ids), books.memory.wanted(ids)
    values = {
        "cpu_limit_cores": np.where(cores < LARGE_CORES, cores, np.inf),
        "memory_limit_bytes": np.where(sizes < LARGE_BYTES, sizes, np.inf),
        "cpu_usage_cores": books.latest.usage_cores(ids),
        "memory_usage_bytes": books.latest.memory_bytes(ids),
        "periods_total": books.latest.periods(ids),
        "throttled_periods_total": books.latest.throttled_periods(ids),
        "throttled_seconds_total": books.latest.throttled_s(ids),
    }
    return [
        *(Series(f"twinbed_container_{name}", column, labels) for name, column in values.items()),
        Series("twinbed_containers_unlisted", (len(books.members) - len(members),)),
    ]


def _applications(controller: Controller) -> list[Series]:
    books = controller.books
    labels = [(application.name,) for application in books.deployment.applications]
    cores = np.array([application.cpu_limit_cores for application in books.deployment.applications])
    sizes = np.array([application.memory_limit_bytes for application in books.deployment.applications])
    return [
        Series("twinbed_application_cpu_limit_cores", cores, labels),
        Series("twinbed_application_memory_limit_bytes", sizes, labels),
        Series("twinbed_pool_cpu_cores", cores - books.cpu.bounds(), labels),
        Series("twinbed_pool_memory_bytes", sizes - books.memory.bounds(), labels),
    ]


def _agents(controller: Controller) -> list[Series]:
    books = controller.books
    up = {name: name in books.agents and books.agents[name].live for name in books.deployment.agents}
    states = {
        "up": sum(up.values()),
        "lost": len(books.agents) - sum(up.values()),
        "awaited": len(up) - len(books.agents),
    }
    return [
        Series("twinbed_agents", list(states.values()), [(state,) for state in states]),
        Series("twinbed_agent_up", list(up.values()), [(name,) for name in up]),
    ]


def _counts(controller: Controller) -> list[Series]:
    books, gate = controller.books, controller.gate
    refused = dict.fromkeys(KINDS, 0) | controller.refusals.counts
    values = {
        "agents_lost": books.agents_lost,
        "datagrams_received": gate.received,
        "datagrams_expected": gate.received + gate.lost,
        "telemetry_bytes": controller.telemetry_bytes,
        "records": books.reports,
        "records_unlimited": books.unlimited,
        "records_stale": books.stale,
        "limit_changes": books.limit_changes,
        "oom_grants": books.oom_grants,
        "oom_kills": books.kills,
        "oom_kills_withheld": books.kills_withheld,
    }
    return [
        Series("twinbed_refused_total", list(refused.values()), [(kind,) for kind in refused]),
        *plain({f"twinbed_{name}_total": value for name, value in values.items()}),
    ]
