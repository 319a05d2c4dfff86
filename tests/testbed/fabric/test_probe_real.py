"""Probes and the sentinel: what they write is what happened."""

from __future__ import annotations

import time

import pytest

from testbed.fabric import faults, probe, sentinel, up
from testbed.fabric.model import Fault, FaultKind

WITHIN_S = 30.0


def test_only_whole_lines_are_read(tmp_path) -> None:
    file = tmp_path / "flows.txt"
    file.write_text('3 1000000000 1250000000 124 .\n{"received": 5, "lost": 1, "late": 0}\n2 100000')
    (gap,) = probe.gaps(file)
    assert (gap.flow, gap.lost) == (3, 124)
    assert gap.length_s == pytest.approx(0.25)
    assert probe.received(file) == probe.Received(5, 1, 0)
    stalls = tmp_path / "stalls.txt"
    stalls.write_text("0 5 25\n1 5 2")
    assert sentinel.read(stalls)[0] == sentinel.Stall(0, 5, 25)


def test_a_stall_of_all_cpus_is_one() -> None:
    stalls = [sentinel.Stall(0, 0, 50_000_000), sentinel.Stall(1, 10_000_000, 70_000_000)]
    alone = sentinel.Stall(1, 900_000_000, 930_000_000)
    assert sentinel.lengths_s([alone, *stalls]) == pytest.approx([0.07, 0.03])


@pytest.mark.root
@pytest.mark.slow
def test_a_flow_on_the_dead_path_has_a_gap_and_others_have_none(fabric, tmp_path) -> None:
    here, there = (host.endpoints[0] for host in fabric.hosts)
    fault = Fault(FaultKind.PORT, host=0, uplink=0)
    with (
        sentinel.sentinel(tmp_path / "stalls.txt"),
        probe.probing([probe.Flows(here, there), probe.Flows(there, here)], tmp_path) as files,
    ):
        injected = faults.inject(fabric, fault)

        def hit(file) -> set[int]:
            return {each.flow for each in probe.gaps(file) if each.lost and each.end_ns > injected.at_ns}

        try:
            deadline = time.monotonic() + WITHIN_S
            while not all(hit(file) for file in files):
                assert time.monotonic() < deadline, "no gap ends"
                time.sleep(0.02)
        finally:
            faults.clear(fabric, fault)
            up.wait_converged(fabric, WITHIN_S)
    for file in files:
        total = probe.received(file)
        assert total.received > total.lost > 0
