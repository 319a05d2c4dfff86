"""The program's costs from CPU per container: found again where the twin itself used it."""

from dataclasses import replace

import numpy as np
import pytest

from lab.ask.calibration import distribution
from lab.containers.calibrate import fit, subject
from lab.containers.calibrate.figures import jitter, per_request
from lab.containers.calibrate.values import Program
from lab.containers.input.services.graph import compile_graph, visits_per_request
from twinbed import BackendError

CORES = 2.0
TRUE = Program(
    visit_s=1.2e-4, stage_s=6e-5, call_s=4e-5, dilation=1.07, wake_s=1.7e-4, wake_tau_s=0.02,
    network_s=2e-4, base_bytes=0.0, kernel_bytes=0.0, loop_cores=0.0, client_request_s=0.0, client_s=0.0,
    stolen=0.0, imbalance=0.0, moves=0.0,
)  # fmt: skip
START = replace(TRUE, visit_s=5e-5, stage_s=0.0, call_s=1e-4, dilation=1.0, wake_s=0.0)
IDLE_CORES, ROUNDS = 0.0003, 2


@pytest.fixture(scope="module")
def ran():
    """Return what a machine with these costs would show, with IDLE_CORES of further use in every
    container."""
    asked = subject.schedule(40.0)
    used_s, log = fit.simulated(asked, TRUE, CORES)
    return fit.Ran(asked, used_s + IDLE_CORES * ROUNDS * 5.0, log.latency_s)


@pytest.mark.slow
def test_costs_are_found_in_the_cpu_that_they_make(ran):
    found = fit.fit(ran, START, CORES, taus_s=(0.01, 0.02, 0.04))
    for name in ("visit_s", "stage_s", "call_s", "wake_s"):
        assert getattr(found.program, name) == pytest.approx(getattr(TRUE, name), abs=2e-6)
    assert found.program.dilation == pytest.approx(TRUE.dilation, abs=2e-3)
    assert found.program.wake_tau_s == TRUE.wake_tau_s
    assert np.abs(found.error).max() < 1e-3


@pytest.mark.slow
def test_how_unbalanced_the_cpus_are_is_found_in_the_latencies(ran):
    true = replace(TRUE, client_s=0.0003, stolen=0.05, imbalance=0.5)
    log = fit.simulated(ran.asked, true, CORES)[1]
    found = fit.way(replace(ran, latency_s=log.latency_s), replace(TRUE, stolen=0.05), CORES)
    assert found.imbalance == 0.5
    assert found.client_s == pytest.approx(0.0003, rel=0.1)
    assert found.error < 0.05


def test_what_is_left_of_the_latency_is_the_network_and_the_clients_way(ran, monkeypatch):
    monkeypatch.setattr(fit, "IMBALANCE", (0.0, 0.5))
    later = replace(ran, latency_s=ran.latency_s + 0.0003)
    found = fit.way(later, TRUE, CORES)
    # A network's delay moves visits a little in time, and so who shares a CPU with whom.
    assert found.call_s == pytest.approx(TRUE.network_s, rel=0.05)
    assert found.client_s == pytest.approx(0.0003, rel=0.05)
    assert found.imbalance == 0.0


def test_every_service_is_visited():
    compiled = compile_graph(subject.application())
    assert (visits_per_request(compiled) > 0).all()
    assert len(compiled.names) == 12


def test_every_rate_is_asked_in_its_rows_and_no_block_asks_at_its_ends():
    asked = subject.schedule(80.0)
    at_s, rows = asked.arrivals.at_s, asked.rate
    assert asked.duration_s == pytest.approx(80.0)
    assert np.bincount(rows - subject.WARM_UP).tolist() == [50, 250, 250, 250]
    per_rate = np.bincount(rows[(at_s / subject.PERIOD_S).astype(int)] - subject.WARM_UP)[1:]
    assert per_rate / (25.0 - 5 * 0.4) == pytest.approx(subject.RATES_RPS, rel=0.15)
    assert ((at_s % 5.0 > 0.19) & (at_s % 5.0 < 4.81)).all()
    assert np.array_equal(at_s, subject.schedule(80.0).arrivals.at_s)


def test_rows_that_are_missing_at_the_end_are_no_error():
    rate = np.array([subject.WARM_UP, 0, 1, 2, 2])
    usage_cores = np.array([[9.0, 9.0], [1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert fit.used(usage_cores, rate) == pytest.approx(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]) * 0.1)


def test_a_distribution_says_its_size_and_percentiles():
    found = distribution([float(each) for each in range(1, 101)], "s", "measured: x")
    assert (found.value, found.n) == (50.5, 100)
    assert (found.p50, found.p95) == (50.5, pytest.approx(95.05))


def test_jitter_is_that_of_a_normal_delay_without_its_outliers():
    values = [1e-4] * 90 + [1e-4 + 1.645e-4] * 9 + [0.09]
    assert jitter(values, "measured: x").value == pytest.approx(1e-4, rel=0.05)


def test_nothing_measured_is_no_distribution():
    with pytest.raises(BackendError, match="nothing was measured"):
        distribution([], "s", "measured: x")


def test_what_idles_does_not_count_for_a_request():
    # 2 s of idling in all runs, 1 ms per request.
    assert per_request((2.05, 2.2, 2.1), (50, 200, 100)) == pytest.approx(1e-3)
