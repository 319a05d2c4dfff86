from dataclasses import replace

import numpy as np
import pytest

from control.fabric import BfdTimers, Direction, FaultKind, PlannedFault
from tests.twin.fabric.conftest import flapping, single
from twin.fabric import failover as module
from twin.fabric.failover import failover, gap_samples
from twin.fabric.faults import round_robin
from twin.fabric.model import Bond, Delay, Handling, Reroute, Scheme
from twin.fabric.topology import dual_tor
from twinbed import ScenarioError

TIMERS = BfdTimers(0.05, 3)
FABRIC = dual_tor(3)
SEED = np.random.SeedSequence(7)
DETECTED = (0.100, 0.150)
"""Between which a silent fault is noticed at 3 × 50 ms: three intervals after a packet 0 to 50 ms ago."""


def by_way(outages):
    """The (source, destination, uplink, last uplink, direction) of every row."""
    columns = (outages.source, outages.destination, outages.uplink, outages.last_uplink, outages.direction)
    return set(zip(*(column.tolist() for column in columns), strict=True))


def test_only_flows_on_the_dead_path_suffer_in_each_direction(thorn):
    outages = failover(FABRIC, single(1.0, host=1, uplink=0), thorn, SEED)
    assert by_way(outages) == {(1, 0, 0, 0, 0), (1, 2, 0, 0, 0), (0, 1, 0, 0, 1), (2, 1, 0, 0, 1)}


def test_the_host_waits_one_hold_and_a_sender_far_away_two(thorn):
    plan = round_robin(FABRIC, 4000.0)
    outages = failover(FABRIC, plan, thorn, SEED)
    out = outages.direction == Direction.OUT
    noticed = outages.detected_s - outages.begin_s
    assert (noticed >= DETECTED[0]).all()
    assert (noticed <= DETECTED[1]).all()
    # Host: hold 50, route 1 ms. Far: hold 50, message 3, hold 50, route 1 ms.
    assert (outages.installed_s - outages.detected_s)[out] == pytest.approx(0.051)
    assert (outages.installed_s - outages.detected_s)[~out] == pytest.approx(0.104)
    assert outages.gap_s == pytest.approx(outages.installed_s - outages.begin_s)
    assert (outages.installed_s - outages.selected_s) == pytest.approx(0.001)


def test_one_fault_is_noticed_once_whoever_the_flows_go_to(control):
    outages = failover(FABRIC, single(1.0), Handling(Scheme.THORN, control, TIMERS), SEED)
    for way in Direction:
        assert len(set(outages.detected_s[outages.direction == way])) == 1
    assert len(set(outages.installed_s[outages.direction == Direction.OUT])) == 1
    assert len(set(outages.installed_s[outages.direction == Direction.IN])) == 2


@pytest.mark.parametrize("way", Direction)
def test_of_a_one_way_fault_only_that_direction_is_lost_and_the_deaf_end_tells_the_other(thorn, way):
    plan = [PlannedFault(FaultKind.LINK, host=0, uplink=1, one_way=way, at_s=1.0, down_s=9.0)]
    outages = failover(FABRIC, plan, thorn, SEED)
    assert set(outages.direction.tolist()) == {int(way)}
    assert (outages.detected_s - 1.0 >= DETECTED[0]).all()
    assert (outages.detected_s - 1.0 <= DETECTED[1] + FABRIC.delay_s).all()


def test_without_a_carrier_the_kernel_of_the_host_waits_for_nobody(thorn):
    outages = failover(FABRIC, single(1.0, silent=False), thorn, SEED)
    out = outages.direction == Direction.OUT
    assert outages.gap_s[out] == pytest.approx(0.002)
    assert outages.gap_s[~out] == pytest.approx(0.002 + 0.104)


def test_with_spines_traffic_from_other_racks_waits_for_a_hold_at_tor_and_spine(thorn):
    fabric = dual_tor(4, tors=4, spines=2)
    outages = failover(fabric, single(1.0), thorn, SEED, pairs=[[1, 0], [2, 0], [0, 3]])
    into = outages.direction == Direction.IN
    # ToR: hold 50. Spine or host of the rack: message 3, hold 50, route 1 ms.
    assert (outages.installed_s - outages.detected_s)[into] == pytest.approx(0.104)
    # Host 1 shares the ToR; host 2 comes by either of its own; host 0 leaves by uplink 0 to either of 3's.
    assert by_way(outages) == {
        (1, 0, 0, 0, 1),
        (2, 0, 0, 0, 1),
        (2, 0, 1, 0, 1),
        (0, 3, 0, 0, 0),
        (0, 3, 0, 1, 0),
    }


def test_at_a_dead_switch_every_sender_notices_for_itself(thorn):
    outages = failover(FABRIC, [PlannedFault(FaultKind.TOR, tor=1, at_s=1.0, down_s=9.0)], thorn, SEED)
    assert by_way(outages) == {(s, d, 1, 1, 0) for s in range(3) for d in range(3) if s != d}
    assert (outages.installed_s - outages.detected_s) == pytest.approx(0.051)
    assert len(set(outages.detected_s)) == 3


def test_a_fault_shorter_than_detection_costs_its_length_and_nobody_notices(thorn):
    outages = failover(FABRIC, flapping(5, 1.0, 0.08, 0.5), thorn, SEED)
    assert len(outages.fault) == 20
    assert outages.gap_s == pytest.approx(0.08)
    assert np.isinf(outages.detected_s).all()
    assert np.isinf(outages.installed_s).all()


def test_a_flapping_port_hurts_once_because_its_session_is_not_up_again(thorn):
    outages = failover(FABRIC, flapping(5, 1.0, 1.0, 1.5), thorn, SEED)
    assert set(outages.fault.tolist()) == {0}
    again = failover(FABRIC, flapping(5, 1.0, 1.0, 2.5), thorn, SEED)
    assert set(again.fault.tolist()) == {0, 1, 2, 3, 4}


def test_with_both_links_dead_a_host_is_lost_until_the_first_session_is_up_again(thorn):
    plan = [
        PlannedFault(FaultKind.PORT, host=0, uplink=0, at_s=1.0, down_s=20.0),
        PlannedFault(FaultKind.PORT, host=0, uplink=1, at_s=5.0, down_s=30.0),
    ]
    outages = failover(FABRIC, plan, thorn, SEED)
    second = outages.fault == 1
    # Uplink 0 comes back at 21 s and its session 2 s later: by that path, not by the repair of its own.
    assert outages.end_s[second] == pytest.approx(23.0)
    assert outages.installed_s[second] == pytest.approx(23.0)
    adapter = PlannedFault(FaultKind.NIC, host=0, uplink=0, at_s=1.0, down_s=20.0)
    alone = failover(FABRIC, [adapter], thorn, SEED)
    assert alone.end_s == pytest.approx(23.0)


def test_a_link_dead_at_either_end_of_both_paths_needs_a_spine(thorn):
    plan = [*single(1.0, host=0, uplink=0), *single(2.0, host=1, uplink=1)]
    pairs = np.array([[0, 1]])
    apart = failover(dual_tor(2), plan, thorn, SEED, pairs=pairs)
    assert np.isinf(apart.end_s[apart.fault == 1]).all()
    joined = failover(dual_tor(2, spines=1), plan, thorn, SEED, pairs=pairs)
    assert (joined.gap_s < 0.3).all()


def test_a_bond_waits_for_three_lacpdus_or_its_next_look_at_the_carrier(exact):
    bond = Bond(miimon_s=0.1, lacp_s=1.0)
    silent = gap_samples(Handling(Scheme.BOND, exact, TIMERS, bond=bond), True, 4000, SEED)
    assert silent.min() > 2.0
    assert silent.max() < 3.01
    assert silent.mean(axis=0) == pytest.approx([2.5, 2.501], abs=0.03)
    carrier = gap_samples(Handling(Scheme.BOND, exact, TIMERS, bond=bond), False, 4000, SEED)
    assert carrier[:, 0].mean() == pytest.approx(0.05, abs=0.003)
    assert carrier[:, 1] == pytest.approx(0.003)


def test_a_rebuilt_communicator_is_waited_for_even_if_the_link_is_back(exact):
    reroute = Reroute(timeout_s=30.0, rebuild_s=10.0)
    lasting = {
        down_s: gap_samples(
            Handling(Scheme.REROUTE, exact, TIMERS, reroute=reroute), True, 3, SEED, down_s=down_s
        )
        for down_s in (20.0, 35.0, np.inf)
    }
    assert lasting[20.0] == pytest.approx(20.0)
    assert lasting[35.0] == pytest.approx(40.0)
    assert lasting[np.inf] == pytest.approx(40.0)


def test_without_redundancy_flows_use_one_uplink_and_wait_for_its_repair(exact):
    plan = [*single(1.0, uplink=0, down_s=20.0), *single(50.0, uplink=1, down_s=20.0)]
    outages = failover(FABRIC, plan, Handling(Scheme.NONE, exact, TIMERS), SEED)
    assert set(outages.fault.tolist()) == {0}
    assert outages.gap_s == pytest.approx(20.0)
    assert gap_samples(Handling(Scheme.NONE, exact, TIMERS), True, 2, SEED, down_s=7.0) == pytest.approx(7.0)
    assert np.isinf(gap_samples(Handling(Scheme.NONE, exact, TIMERS), True, 2, SEED)).all()


def test_faults_of_one_link_that_overlap_are_one_until_the_last_repair(exact, thorn):
    faults = [fault for begin_s in (10.0, 25.0, 60.0) for fault in single(begin_s, down_s=20.0)]
    alone = failover(FABRIC, faults, Handling(Scheme.NONE, exact, TIMERS), SEED)
    assert sorted(set(zip(alone.begin_s.tolist(), alone.end_s.tolist(), strict=True))) == [
        (10.0, 45.0),
        (60.0, 80.0),
    ]
    # Neither fault would be noticed if it were alone.
    short = [fault for begin_s in (10.0, 10.05, 10.1, 10.15) for fault in single(begin_s, down_s=0.09)]
    noticed = failover(FABRIC, short, thorn, SEED)
    assert np.isfinite(noticed.detected_s).all()


@pytest.mark.parametrize("scheme", Scheme)
@pytest.mark.parametrize("silent", [True, False])
def test_samples_are_the_outages_of_single_faults(control, scheme, silent):
    fabric, plan = dual_tor(2), round_robin(dual_tor(2), 160_000.0, silent=silent)
    outages = failover(fabric, plan, Handling(scheme, control, TIMERS), SEED)
    samples = gap_samples(Handling(scheme, control, TIMERS), silent, 4000, SEED, down_s=20.0)
    for way in Direction:
        drawn, met = samples[:, way], outages.gap_s[outages.direction == way]
        shares = [0.05, 0.25, 0.5, 0.75, 0.95]
        assert np.quantile(met, shares) == pytest.approx(np.quantile(drawn, shares), rel=0.03)


def test_the_same_seed_gives_the_same_to_the_bit(control):
    handling, plan = Handling(Scheme.THORN, control, TIMERS), round_robin(FABRIC, 900.0)
    first, second = (failover(FABRIC, plan, handling, SEED) for _ in range(2))
    assert first.end_s.tobytes() == second.end_s.tobytes()


def test_pairs_that_are_none_and_more_rows_than_anyone_means_are_refused(thorn, monkeypatch):
    for pairs, words in (([[0, 3]], "0 to 2"), ([[1, 1]], "two different hosts"), ([0, 1], "in each row")):
        with pytest.raises(ScenarioError, match=words):
            failover(FABRIC, single(1.0), thorn, SEED, pairs=np.array(pairs))
    monkeypatch.setattr(module, "ROWS_AT_MOST", 3)
    with pytest.raises(ScenarioError, match="4 outages among 6 pairs"):
        failover(FABRIC, single(1.0), thorn, SEED)


def test_no_fault_no_outage_and_a_bad_delay_is_named(exact, thorn):
    assert failover(FABRIC, [], thorn, SEED).gap_s.size == 0
    with pytest.raises(ScenarioError, match=r"median_s 0\.002, p95_s 0\.001"):
        gap_samples(replace(thorn, control=replace(exact, route_s=Delay(0.002, 0.001))), True, 1, SEED)
