"""A real Prometheus and a real VictoriaMetrics give back what was put into them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.connect.http import Access
from lab.connect.prometheus import Question, fetch
from tests.lab.connect import servers
from tests.traces.prometheus.exposition import START_S, exposition, openmetrics, samples
from traces.load import load
from traces.refine import aggregate
from traces.schema import UsageTrace

TOLERANCE_CORES = 1e-6
"""Scrapes at the edges leave no sampling error: what is left is the rounding of the counters' decimals."""


def bursty() -> UsageTrace:
    trace = load("bursty_service")
    return replace(trace, apps=("shop",) * len(trace.apps))


def asked(url: str, trace: UsageTrace, step_s: float, selector: str = "") -> UsageTrace:
    question = Question(selector, START_S, START_S + trace.duration_s, step_s)
    return fetch(Access(url), question).trace


def by_column(trace: UsageTrace, other: UsageTrace) -> list[int]:
    """Returns the column of `other` for each container of `trace`."""
    place = {name: column for column, name in enumerate(other.containers)}
    return [place[f"{app}/{name}/{name}"] for app, name in zip(trace.apps, trace.containers, strict=True)]


def check(original: UsageTrace, found: UsageTrace, step_s: float) -> None:
    """Asserts that `found` has the means of the original per step.

    Intervals in which a container began or ended are left out: their means are over what was seen.
    """
    parts = round(step_s / original.interval_s)
    expected = aggregate(original, step_s)
    there = original.present[: len(expected.present) * parts].reshape(len(expected.present), parts, -1)
    whole, partly = there.all(axis=1), there.any(axis=1)
    columns = by_column(original, found)
    rows = slice(0, len(expected.present))
    present = found.present[rows, columns]
    assert (present[whole]).all()
    assert not (present[~partly]).any()
    cpu, memory = found.cpu_cores[rows, columns], found.memory_bytes[rows, columns]
    np.testing.assert_allclose(cpu[whole], expected.cpu_cores[whole], atol=TOLERANCE_CORES, rtol=0)
    np.testing.assert_allclose(memory[whole], expected.memory_bytes[whole], rtol=1e-9)


@pytest.mark.parametrize(
    ("server", "text"),
    [(servers.prometheus, openmetrics), (servers.victoria_metrics, exposition)],
    ids=["prometheus", "victoria-metrics"],
)
def test_a_recording_comes_back_as_its_means_per_step(server, text, tmp_path: Path) -> None:
    recording = bursty()
    with server(tmp_path, text(samples(recording))) as url:
        found = asked(url, recording, 1.0, 'namespace="shop"')
    check(recording, found, 1.0)


@pytest.mark.parametrize(
    ("server", "text"),
    [(servers.prometheus, openmetrics), (servers.victoria_metrics, exposition)],
    ids=["prometheus", "victoria-metrics"],
)
def test_a_public_set_comes_back(server, text, tmp_path: Path, public_data: Callable[[str], Path]) -> None:
    pods = load(public_data("nezha_pod_metrics_1min"))
    with server(tmp_path, text(samples(pods))) as url:
        found = asked(url, pods, 60.0)
    check(pods, found, 60.0)
