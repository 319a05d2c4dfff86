"""A real Prometheus and a real VictoriaMetrics give back what was put into them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from lab.connect.http import Access
from lab.connect.prometheus import HistoryQuestion, fetch
from tests.lab.connect import servers
from tests.traces.prometheus.exposition import START_S, exposition, openmetrics, samples
from traces.load import load
from traces.prometheus import kept
from traces.refine import aggregate
from traces.schema import UsageTrace

TOLERANCE_CORES = 1e-6
"""Scrapes at the edges leave no sampling error: what is left is the rounding of the counters' decimals."""


def bursty() -> UsageTrace:
    trace = load("bursty_service")
    return replace(trace, apps=("shop",) * len(trace.apps))


def asked(url: str, trace: UsageTrace, step_s: float, selector: str = "") -> UsageTrace:
    question = HistoryQuestion(selector, START_S, START_S + trace.duration_s, step_s)
    return fetch(Access(url), question).trace


def by_column(trace: UsageTrace, other: UsageTrace) -> list[int]:
    """Return the column of `other` for each container of `trace`."""
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


ON_BOTH = pytest.mark.parametrize(
    ("server", "text"),
    [(servers.prometheus, openmetrics), (servers.victoria_metrics, exposition)],
    ids=["prometheus", "victoria-metrics"],
)


@ON_BOTH
def test_a_recording_comes_back_as_its_means_per_step(server, text, tmp_path):
    recording = bursty()
    with server(tmp_path, text(samples(recording))) as url:
        found = asked(url, recording, 1.0, 'namespace="shop"')
    check(recording, found, 1.0)


@ON_BOTH
def test_a_public_set_comes_back(server, text, tmp_path, public_data):
    pods = load(public_data("nezha_pod_metrics_1min"))
    with server(tmp_path, text(samples(pods))) as url:
        found = asked(url, pods, 60.0)
    check(pods, found, 60.0)


@ON_BOTH
def test_scrapes_between_the_edges_move_a_mean_by_less_than_a_scrape(server, text, tmp_path):
    """A server answers at an edge with its last scrape, which is up to d (one scrape interval) old.

    So the mean is over a stretch of the step's length that lies up to d earlier. Where use lies between 0 and
    p cores, the mean differs from the interval's own by at most p · d / step: that is the sampling error.
    """
    recording, scrape_s, step_s, late_s = bursty(), 5.0, 10.0, 1.7
    with server(tmp_path, text(samples(recording, every=50, late_s=late_s))) as url:
        found = asked(url, recording, step_s)
    columns = by_column(recording, found)
    both = found.present[:, columns].all(axis=1)
    rows = np.flatnonzero(both)[1:-1]
    edges_s = np.arange(len(recording.present) + 1) * recording.interval_s
    for column, place in enumerate(columns):
        used = np.append(0.0, np.cumsum(recording.cpu_cores[:, column] * recording.interval_s))

        def mean(begins_s, edges_s=edges_s, used=used):
            return (np.interp(begins_s + step_s, edges_s, used) - np.interp(begins_s, edges_s, used)) / step_s

        earlier = mean(rows * step_s - (scrape_s - late_s))
        np.testing.assert_allclose(found.cpu_cores[rows, place], earlier, atol=TOLERANCE_CORES, rtol=0)
        most = recording.cpu_cores[:, column].max() * scrape_s / step_s
        assert (np.abs(found.cpu_cores[rows, place] - mean(rows * step_s)) <= most).all()
    assert len(rows) > 15


def test_a_pod_that_ended_does_not_live_on_for_the_look_back(tmp_path):
    """The samples have no stale markers, so a server repeats the last one for five minutes."""
    recording = bursty()
    gone = recording.present.copy()
    gone[1000:, 0] = False
    cpu, memory = np.where(gone, recording.cpu_cores, 0), np.where(gone, recording.memory_bytes, 0)
    short = replace(recording, present=gone, cpu_cores=cpu, memory_bytes=memory)
    with servers.prometheus(tmp_path, openmetrics(samples(short))) as url:
        found = asked(url, short, 1.0)
    assert np.flatnonzero(found.present[:, by_column(short, found)[0]])[-1] == 99


def test_a_prometheus_behind_tls_wants_its_token(tmp_path, twinbed, monkeypatch):
    recording, out = bursty(), tmp_path / "shop.parquet"
    pem = servers.certificate(tmp_path)
    monkeypatch.setenv("SHOP_TOKEN", "open-sesame")
    end_s = START_S + recording.duration_s
    question = (
        "--selector", 'namespace="shop"', "--since", "30s", "--until", end_s, "--step", "1s", "--out", out,
    )  # fmt: skip
    with (
        servers.prometheus(tmp_path, openmetrics(samples(recording))) as inner,
        servers.http_server(servers.proxy(inner, "open-sesame"), pem) as url,
    ):
        tls = ("--ca-file", tmp_path / "ca.pem")
        without = twinbed("traces", "import", "prometheus", url, *tls, *question)
        assert "answered 401 Unauthorized; the token or password is missing or wrong" in without.refused
        assert not out.exists()
        ended = twinbed("traces", "import", "prometheus", url, *tls, "--token-env", "SHOP_TOKEN", *question)
        wrong = twinbed(
            "traces", "import", "prometheus", inner, "--selector", 'namespac="shop"', *question[2:]
        )
        other = twinbed("traces", "import", "prometheus", inner, "--selector", 'namespace="a"', *question[2:])
    assert ended.code == 0, ended.err
    assert "open-sesame" not in ended.out
    assert kept.read(out).trace.shape == (30, 4)
    assert "no series has a label namespac; did you mean namespace?" in wrong.refused
    assert "its label namespace has the values shop; change --selector or --since" in other.refused
    replayed = twinbed("whatif", out, "--policy", "static", "--format", "json")
    assert replayed.code == 0, replayed.err


def stated(rows: int) -> Iterator[tuple[str, str, float, float]]:
    """Yields what kube-state-metrics tells of a pod, and a second pod whose name begins like the first's."""
    for row in range(rows):
        at_s = START_S + 30.0 * row
        for pod, cores in (("web.1", 0.5), ("web-1", 0.25), ("web.10", 0.125)):
            own = f'namespace="shop",pod="{pod}",container="app"'
            yield (
                "container_cpu_usage_seconds_total",
                f'{own},cpu="total",job="kubelet"',
                cores * 30.0 * row,
                at_s,
            )
            yield "kube_pod_container_resource_limits", f'{own},resource="cpu",job="state"', 4 * cores, at_s
            yield "kube_pod_container_status_restarts_total", f'{own},job="state"', float(row > 10), at_s
            owner = 'owner_kind="StatefulSet",owner_name="web"'
            yield "kube_pod_owner", f'namespace="shop",pod="{pod}",{owner},job="state"', 1.0, at_s
            if pod == "web-1":
                yield "kube_pod_init_container_info", f'{own},job="state"', 1.0, at_s


@ON_BOTH
def test_every_pod_is_asked_for_by_its_own_name_in_batches(server, text, tmp_path, monkeypatch):
    monkeypatch.setattr("lab.connect.prometheus.MOST_PODS", 1)
    question = HistoryQuestion('namespace="shop",job="kubelet"', START_S, START_S + 30.0 * 39, 30.0)
    with server(tmp_path, text(stated(40))) as url:
        history = fetch(Access(url), question)
    pods = [owner.pod for owner in history.owners]
    assert sorted(pods) == ["web-1", "web.1", "web.10"]
    assert [owner.pod for owner in history.owners if owner.is_init] == ["web-1"]
    assert {(owner.kind, owner.workload) for owner in history.owners} == {("StatefulSet", "web")}
    expected = [{"web.1": 0.5, "web-1": 0.25, "web.10": 0.125}[pod] for pod in pods]
    np.testing.assert_allclose(history.trace.cpu_cores, [expected] * 39, atol=TOLERANCE_CORES)
    assert history.in_force("cpu_limit_cores").tolist() == [4 * cores for cores in expected]
    assert history.total("restarts").tolist() == [1, 1, 1]
