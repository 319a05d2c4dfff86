import numpy as np
import pytest

from control.fabric import Direction, FaultKind, PlannedFault
from tests.twin.fabric.conftest import single
from twin.fabric.faults import EdgeRates, check_faults, dead_links, random_edge, round_robin
from twin.fabric.model import Delay
from twin.fabric.topology import dual_tor
from twinbed import ScenarioError

FABRIC = dual_tor(3, nics=2)
PORT, LINK, NIC, TOR = FaultKind


def fault_of(kind, at_s=1.0, down_s=1.0, **place):
    return PlannedFault(kind, at_s=at_s, down_s=down_s, **place)


def test_round_robin_takes_port_after_port_and_is_down_as_long_as_up():
    plan = round_robin(FABRIC, 300.0)
    # 20 s up, then 20 down and 20 up: one begins at 20, 60, … 260.
    assert [fault.at_s for fault in plan] == [20.0 + 40.0 * turn for turn in range(7)]
    ports = [(fault.host, fault.uplink) for fault in plan]
    assert ports == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (0, 0)]
    assert {(fault.kind, fault.down_s, fault.silent) for fault in plan} == {(PORT, 20.0, True)}


def test_links_of_an_adapter_and_of_a_switch_die_together():
    plan = [
        fault_of(LINK, 1.0, 2.0, host=1, uplink=1, one_way=Direction.IN),
        fault_of(NIC, 2.0, 3.0, host=2, uplink=0),
        fault_of(TOR, 3.0, np.inf, tor=1),
    ]
    links = dead_links(FABRIC, plan)
    where = list(zip(links.fault.tolist(), links.host.tolist(), links.uplink.tolist(), strict=True))
    assert where == [(0, 1, 1), (1, 2, 0), (2, 0, 1), (2, 1, 1), (2, 2, 1)]
    assert links.out.tolist() == [False, True, True, True, True]
    assert links.into.all()
    assert links.repair_s.tolist() == [3.0, 5.0, np.inf, np.inf, np.inf]
    # An adapter with both ports takes the host off the fabric.
    both = dead_links(dual_tor(2), [fault_of(NIC, 0.0, 1.0, host=1, uplink=1)])
    assert both.uplink.tolist() == [0, 1]


def test_random_faults_come_at_their_rates_and_the_same_seed_brings_the_same():
    rates = EdgeRates(Delay(10.0, 30.0), port_per_s=1e-3, nic_per_s=2e-3, tor_per_s=5e-3, silent_share=0.25)
    plan = random_edge(FABRIC, 20_000.0, rates, np.random.SeedSequence(4))
    assert plan == random_edge(FABRIC, 20_000.0, rates, np.random.SeedSequence(4))
    check_faults(FABRIC, plan)
    assert [fault.at_s for fault in plan] == sorted(fault.at_s for fault in plan)
    # Devices × rate × time: 6 ports 120, 6 adapters 240, 2 ToRs 200; five standard deviations about.
    for kind, expected in ((PORT, 120), (NIC, 240), (TOR, 200)):
        count = sum(fault.kind is kind for fault in plan)
        assert abs(count - expected) < 5 * expected**0.5
    assert np.mean([fault.silent for fault in plan]) == pytest.approx(0.25, abs=0.1)
    assert np.median([fault.down_s for fault in plan]) == pytest.approx(10.0, rel=0.2)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (fault_of(PORT, host=3, uplink=0), r"faults\[0\]: host: 3 does not exist"),
        (fault_of(LINK, host=0, uplink=2), "host 0 has no link 2"),
        (fault_of(NIC), "host: -1 does not exist"),
        (fault_of(TOR, tor=2), "tor: 2 does not exist"),
        (fault_of(TOR, tor=0, one_way=Direction.OUT), "one_way"),
        (fault_of(PORT, -1.0, 1.0, host=0, uplink=0), "at_s -1.0"),
        (fault_of(PORT, 0.0, 0.0, host=0, uplink=0), "down_s 0.0"),
        (fault_of(PORT, np.inf, 1.0, host=0, uplink=0), "at_s inf"),
    ],
)
def test_a_fault_of_what_does_not_exist_is_refused(fault, message):
    with pytest.raises(ScenarioError, match=message):
        check_faults(FABRIC, [fault])


def test_a_cycle_without_a_fault_in_it_is_refused():
    with pytest.raises(ScenarioError, match=r"0\.0 s down"):
        round_robin(FABRIC, 10.0, down_s=0.0)
    with pytest.raises(ScenarioError, match="inf s up"):
        round_robin(FABRIC, 10.0, up_s=np.inf)


def test_more_faults_than_can_be_followed_are_refused_before_they_fill_the_memory():
    with pytest.raises(ScenarioError, match=r"faults: 5e\+07 in 1000 s, at most 1,000,000 .*: give longer"):
        round_robin(FABRIC, 1000.0, first_s=0.0, down_s=1e-5, up_s=1e-5)
    with pytest.raises(ScenarioError, match=r"faults: 6e\+09 in 1000 s.*give fewer per day"):
        random_edge(FABRIC, 1000.0, EdgeRates(Delay(1.0, 1.0), port_per_s=1e6), np.random.SeedSequence(0))


def test_a_single_fault_lasts_unless_told():
    assert single(5.0, host=2) == [fault_of(PORT, 5.0, np.inf, host=2, uplink=0)]
