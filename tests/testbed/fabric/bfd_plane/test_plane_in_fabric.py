"""A fabric whose BFD is our data plane's, behind stock bfdd: BGP and the fast path follow what it finds."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from control.fabric import BfdTimers, Fault, FaultKind
from testbed.fabric import faults, frr, leftovers, up
from testbed.fabric.bfd_plane import processes
from testbed.fabric.bfd_plane.program import program
from testbed.fabric.model import Daemon, Fabric, Plan
from testbed.fabric.ownership import state_folder
from testbed.fabric.reach import Reach
from tests.testbed.fabric.test_fabric_up import until
from twinbed import BackendError

pytestmark = [pytest.mark.root, pytest.mark.slow]

WITHIN_S = 30.0


@pytest.fixture(scope="module")
def fabric(fabric_machine: None) -> Iterator[Fabric]:
    try:
        program()
    except BackendError as error:
        pytest.skip(str(error))
    # Slow enough that no stall of the machine is a fault.
    plan = Plan(name="planes", bfd=BfdTimers(0.2, 5), bfd_plane=True, fast_path=True)
    yield up.up(plan)
    leftovers.down(plan.name)


def bgp_up(fabric: Fabric, host: int) -> set[str]:
    shown = json.loads(frr.show(fabric.hosts[host].namespace, "show bgp ipv4 summary json", Daemon.BGPD))
    return {peer for peer, row in shown["ipv4Unicast"]["peers"].items() if row["state"] == "Established"}


def test_a_cut_link_is_reported_to_bgpd_and_to_the_fast_path(fabric: Fabric) -> None:
    assert up.converged(fabric) == []
    host, reach = fabric.hosts[0], Reach(fabric)
    gateway = host.uplinks[0].gateway
    assert bgp_up(fabric, 0) == {uplink.gateway for uplink in host.uplinks}
    fault = Fault(FaultKind.PORT, host=0, uplink=0)
    faults.inject(fabric, fault)
    try:
        # BGP's own hold time is 3 s; bfdd's report comes before.
        until(lambda: reach.without(0, 0), "routes go around")
        until(lambda: gateway not in bgp_up(fabric, 0), "BGP's session ends")
    finally:
        faults.clear(fabric, fault)
        up.wait_converged(fabric, WITHIN_S)
        reach.close()
    downs = [down for down in processes.downs(processes.journal_of(fabric, host)) if down.peer == gateway]
    assert downs
    assert {down.diagnostic for down in downs} <= {1, 3}
    journal = (state_folder(fabric.plan.name) / "fast_path-h0.log").read_text().splitlines()
    steers = [row for row in map(json.loads, journal) if row["what"] == "steer"]
    assert (steers[0]["on"], steers[0]["uplinks"]) in (("Silent", [1]), ("Heard", [1]))


def test_a_killed_data_plane_comes_back_and_bfdd_goes_on_with_it(fabric: Fabric) -> None:
    journal = processes.journal_of(fabric, fabric.hosts[1])
    first = processes.worker(journal)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until(lambda: processes.worker(journal) != first, "it is started again")
    up.wait_converged(fabric, WITHIN_S)
    assert frr.pid_of(fabric.hosts[1].namespace, Daemon.BFDD) is not None
