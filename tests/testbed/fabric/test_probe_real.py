"""Probes and the sentinel record what happened."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.fabric import Fault, FaultKind
from testbed.fabric import faults, probe, sentinel, up
from twinbed import BackendError

WITHIN_S = 30.0


def test_only_whole_lines_are_read(tmp_path) -> None:
    file = tmp_path / "flows.txt"
    total = '{"received": 5, "lost": 1, "late": 0, "twice": 0}'
    file.write_text(f"3 1000000000 1250000000 124 .\n{total}\n2 100000")
    (gap,) = probe.gaps(file)
    assert (gap.flow, gap.lost) == (3, 124)
    assert gap.length_s == pytest.approx(0.25)
    assert probe.received(file) == probe.Received(5, 1, 0, 0)
    stalls = tmp_path / "stalls.txt"
    stalls.write_text("0 5 25\n1 5 2")
    assert sentinel.read(stalls)[0] == sentinel.Stall(0, 5, 25)


def test_a_stall_of_all_cpus_is_one() -> None:
    stalls = [sentinel.Stall(0, 0, 50_000_000), sentinel.Stall(1, 10_000_000, 70_000_000)]
    alone = sentinel.Stall(1, 900_000_000, 930_000_000)
    assert sentinel.lengths_s([alone, *stalls]) == pytest.approx([0.07, 0.03])


MS = 1_000_000


def heard(*numbers: int) -> tuple[probe.FlowHearing, list[probe.Gap]]:
    """Return a flow whose numbers came in this order, 2 ms apart, and its gaps."""
    flow = probe.FlowHearing(3)
    gaps = [flow.take(number, turn * 2 * MS) for turn, number in enumerate(numbers)]
    return flow, [gap for gap in gaps if gap is not None]


def counts(flow: probe.FlowHearing) -> tuple[int, int, int, int]:
    return flow.received, flow.lost, flow.late, flow.twice


def test_numbers_in_their_order_make_no_gap_wherever_they_begin() -> None:
    flow, gaps = heard(7, 8, 9)
    assert not gaps
    assert counts(flow) == (3, 0, 0, 0)


def test_a_gap_is_from_the_last_before_to_the_first_after_what_is_missing() -> None:
    flow, gaps = heard(0, 1, 5, 6)
    assert gaps == [probe.Gap(3, 2 * MS, 4 * MS, 3)]
    assert counts(flow) == (4, 3, 0, 0)


def test_what_comes_late_is_not_lost_and_what_comes_twice_is_no_other() -> None:
    flow, gaps = heard(0, 2, 1, 1, 2, 3)
    assert [gap.lost for gap in gaps] == [1]
    assert counts(flow) == (6, 0, 1, 2)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_every_datagram_is_counted_once(numbers) -> None:
    flow, gaps = heard(*numbers)
    first = numbers[0]
    arrived = {number for number in numbers if number > first}
    assert flow.received == len(numbers)
    assert flow.lost == max(numbers) - first - len(arrived)
    assert flow.late <= sum(gap.lost for gap in gaps) == flow.lost + flow.late
    assert all(gap.begin_ns < gap.end_ns for gap in gaps)


@pytest.mark.root
@pytest.mark.slow
def test_thinned_flows_lose_nothing_and_are_whole_again_at_once(fabric, tmp_path) -> None:
    near, far = (host.endpoints[0] for host in fabric.hosts)
    with probe.probing([probe.Flows(near, far)], tmp_path) as probes:
        probes.thin()
        time.sleep(0.5)
        probes.dense()
        time.sleep(0.5)
    total = probe.received(probes.files[0])
    # Each of 8 flows, on a machine that keeps up, has about 30 datagrams until all flows are heard, 25 in the
    # first half second, and 250 in the second.
    assert 8 * 25 < total.received <= 8 * 350
    assert (total.lost, total.late, total.twice) == (0, 0, 0)


@pytest.mark.root
@pytest.mark.slow
def test_flows_that_do_not_arrive_are_said(fabric, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(probe, "HEARD_WITHIN_S", 0.5)
    near, far = (host.endpoints[0] for host in fabric.hosts)
    cut = [Fault(FaultKind.PORT, host=0, uplink=uplink) for uplink in range(2)]
    try:
        for fault in cut:
            faults.inject(fabric, fault)
        with (
            pytest.raises(BackendError, match=r"some of 8 flows do not arrive within 0\.5 s"),
            probe.probing([probe.Flows(near, far)], tmp_path),
        ):
            raise AssertionError("it began")
    finally:
        for fault in cut:
            faults.clear(fabric, fault)
        up.wait_converged(fabric, WITHIN_S)


@pytest.mark.root
@pytest.mark.slow
def test_a_flow_on_the_dead_path_has_a_gap_and_others_have_none(fabric, tmp_path) -> None:
    near, far = (host.endpoints[0] for host in fabric.hosts)
    fault = Fault(FaultKind.PORT, host=0, uplink=0)
    # A flow's path is random: all of 8 flows take the same one in 1 of 128 runs.
    flows = [probe.Flows(*ends, count=32, rate_per_s=125) for ends in ((near, far), (far, near))]
    faults.clear(fabric, fault)  # The first call loads what the next one uses.
    with sentinel.sentinel(tmp_path / "stalls.txt"), probe.probing(flows, tmp_path) as probes:
        injected = faults.inject(fabric, fault)

        def hit(file) -> set[int]:
            return {gap.flow for gap in probe.gaps(file) if gap.end_ns > injected.at_ns}

        try:
            deadline = time.monotonic() + WITHIN_S
            while not all(hit(file) for file in probes.files):
                assert time.monotonic() < deadline, "no gap ends"
                time.sleep(0.02)
        finally:
            faults.clear(fabric, fault)
            up.wait_converged(fabric, WITHIN_S)
    for file in probes.files:
        total = probe.received(file)
        assert total.received > total.lost > 0
