from dataclasses import fields

import numpy as np
import pytest

from control.fabric import BfdTimers
from tests.twin.fabric.conftest import single
from twin.fabric.failover import failover
from twin.fabric.faults import round_robin
from twin.fabric.model import Handling, Outages, Scheme
from twin.fabric.probe import probe
from twin.fabric.topology import dual_tor
from twinbed import ScenarioError

FABRIC = dual_tor(2)
PAIRS = np.array([[0, 1], [1, 0]])
TIMERS = BfdTimers(0.05, 3)
SEED = np.random.SeedSequence(3)


def test_a_gap_is_what_lies_between_the_arrivals_about_an_outage(control):
    plan = round_robin(FABRIC, 4000.0)
    outages = failover(FABRIC, plan, Handling(Scheme.THORN, control, TIMERS), SEED)
    probes = probe(FABRIC, outages, PAIRS, SEED, flows=8, rate_per_s=500.0)
    real = outages.gap_s[probes.outage]
    # At 2 ms a probe: the gap is at least the outage and at most one interval more on each side.
    assert (probes.gap_s >= real).all()
    assert (probes.gap_s <= real + 0.004).all()
    assert probes.lost == pytest.approx(probes.gap_s / 0.002 - 1)


def test_only_flows_on_the_dead_path_have_a_gap(control):
    outages = failover(FABRIC, single(1.0), Handling(Scheme.THORN, control, TIMERS), SEED)
    probes = probe(FABRIC, outages, PAIRS, SEED, flows=400)
    hit = len(set(probes.flow.tolist()))
    assert hit == len(probes.flow)
    # Half of 800 flows are expected, within five standard deviations (14 each).
    assert abs(hit - 400) < 70


def test_the_worst_flow_of_each_fault(control):
    plan = [*single(1.0, down_s=20.0), *single(100.0, host=1, uplink=1, down_s=20.0)]
    outages = failover(FABRIC, plan, Handling(Scheme.THORN, control, TIMERS), SEED)
    probes = probe(FABRIC, outages, PAIRS, SEED, flows=32)
    longest = [outages.gap_s[outages.fault == fault].max() for fault in (0, 1)]
    worst_s = np.zeros(3)
    np.maximum.at(worst_s, outages.fault[probes.outage], probes.gap_s)
    assert worst_s == pytest.approx([*longest, 0.0], abs=0.004)


def test_what_never_comes_back_is_never_received_again():
    one = np.zeros(1, np.int64)
    columns = {
        column.name: one if column.type == "Whole" else np.array([np.inf]) for column in fields(Outages)
    }
    outages = Outages(**{**columns, "destination": one + 1, "begin_s": np.array([1.0])})
    probes = probe(FABRIC, outages, np.array([[0, 1]]), SEED, flows=16)
    assert probes.gap_s.size
    assert np.isinf(probes.gap_s).all()
    assert (probes.lost == -1).all()


def test_a_probe_that_sends_nothing_is_refused(control):
    outages = failover(FABRIC, single(1.0), Handling(Scheme.THORN, control, TIMERS), SEED)
    with pytest.raises(ScenarioError, match="rate_per_s"):
        probe(FABRIC, outages, PAIRS, SEED, rate_per_s=0.0)
