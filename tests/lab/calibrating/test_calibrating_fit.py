"""The program's costs from CPU per container: found again where the twin itself used it."""

from dataclasses import replace

import numpy as np
import pytest

from lab.calibrating import fit, subject
from lab.calibration import Program
from lab.services.graph import compile_graph, visits_per_request

CORES = 2.0
TRUE = Program(
    visit_s=1.2e-4,
    stage_s=6e-5,
    call_s=4e-5,
    dilation=1.07,
    wake_s=1.7e-4,
    wake_tau_s=0.02,
    network_s=2e-4,
    base_bytes=0.0,
    loop_cores=0.0,
    client_request_s=0.0,
)
START = replace(TRUE, visit_s=5e-5, stage_s=0.0, call_s=1e-4, dilation=1.0, wake_s=0.0)
IDLE_S = 0.003


def ran(rate_rps, costs=TRUE, duration_s=12.0):
    """What a machine of these costs would show, every container using IDLE_S for itself."""
    arrivals = subject.arrivals(rate_rps, duration_s)
    empty = fit.Ran(arrivals, duration_s, np.empty(0), np.empty(0))
    used_s, log = fit.simulated(empty, costs, CORES)
    return fit.Ran(arrivals, duration_s, used_s + IDLE_S, log.latency_s)


@pytest.fixture(scope="module")
def runs():
    return [ran(rate_rps) for rate_rps in (8.0, 24.0, 64.0)]


@pytest.mark.slow
def test_costs_are_found_in_the_cpu_that_they_make(runs):
    found = fit.fit(runs, START, CORES, taus_s=(0.01, 0.02, 0.04))
    for name in ("visit_s", "stage_s", "call_s", "wake_s"):
        assert getattr(found.program, name) == pytest.approx(getattr(TRUE, name), abs=2e-6)
    assert found.program.dilation == pytest.approx(TRUE.dilation, abs=2e-3)
    assert found.program.wake_tau_s == TRUE.wake_tau_s
    assert np.abs(found.error).max() < 1e-3


def test_what_is_left_of_the_latency_is_the_network(runs):
    # Its delay moves visits a little in time, and so who shares a CPU with whom.
    assert np.median(fit.beyond_cpu_s(runs, TRUE, CORES)) == pytest.approx(TRUE.network_s, rel=0.02)


def test_no_container_is_asked_never_and_none_by_itself_alone():
    compiled = compile_graph(subject.application())
    assert (visits_per_request(compiled) > 0).all()
    assert len(compiled.names) == 12


def test_arrivals_leave_the_runs_end_to_those_that_are_not_answered_yet():
    at_s = subject.arrivals(64.0, 10.0).at_s
    assert subject.LEAD_S <= at_s.min() < at_s.max() <= 10.0 - subject.TAIL_S
