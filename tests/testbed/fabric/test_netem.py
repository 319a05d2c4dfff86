"""Delay and corruption of a link by netem, on a kernel that has it: one cable without routing."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from control.fabric import Direction, Fault, FaultKind
from testbed.fabric import devices, doctor, faults, leftovers
from testbed.fabric.links import run_in
from testbed.fabric.model import Fabric, Plan
from testbed.fabric.plan import fabric_of

pytestmark = [pytest.mark.root, pytest.mark.slow]

PORT = Fault(FaultKind.PORT, host=0, uplink=0)
DELAY_S = 0.5
"""Far above the time of a packet under emulation."""


@pytest.fixture(params=[None, 1e8], ids=["unlimited", "shaped"])
def cable(fabric_machine: None, request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """A fabric's first host and ToR with the link between them, addresses and rate, and nothing else."""
    if not doctor.has_netem():
        pytest.skip("this kernel has no netem; see make test-vm")
    fabric = fabric_of(Plan(name="netem", rate_bps=request.param))
    host, tor = fabric.hosts[0], fabric.tors[0]
    uplink = host.uplinks[0]
    ends = (
        (host.namespace, uplink.device, uplink.address),
        (tor.namespace, uplink.tor_device, uplink.gateway),
    )
    try:
        for namespace, _, _ in ends:
            subprocess.run(["ip", "netns", "add", namespace], check=True)
        peer = f"peer name {uplink.tor_device} netns {tor.namespace}"
        devices.feed(host.namespace, ("ip", "-batch", "-"), f"link add {uplink.device} type veth {peer}\n")
        for namespace, device, address in ends:
            lines = f"addr add {address}/31 dev {device}\nlink set {device} up\n"
            devices.feed(namespace, ("ip", "-batch", "-"), lines)
            devices.shape(fabric.plan, namespace, [device])
        yield fabric
    finally:
        leftovers.remove("netem")


def ping(fabric: Fabric, count: int) -> tuple[int, float]:
    """Return how many of the host's pings the ToR answers, and the shortest time, s."""
    host = fabric.hosts[0]
    command = ["ping", "-c", str(count), "-i", "0.2", "-W", "3", "-s", "1400", host.uplinks[0].gateway]
    shown = run_in(host.namespace, command, timeout_s=120).stdout
    received = re.search(r"(\d+) received", shown)
    shortest = re.search(r"= ([\d.]+)/", shown)
    assert received is not None, shown
    return int(received[1]), float(shortest[1]) / 1e3 if shortest else 0.0


def test_a_delayed_link_delays_each_direction_until_it_is_mended(cable: Fabric) -> None:
    faults.degrade(cable, PORT, DELAY_S, 0.0)
    assert ping(cable, 3)[1] >= 2 * DELAY_S
    faults.mend(cable, PORT)
    assert ping(cable, 3)[1] < DELAY_S
    one_way = Fault(FaultKind.PORT, host=0, uplink=0, one_way=Direction.IN)
    faults.degrade(cable, one_way, DELAY_S, 0.0)
    assert DELAY_S <= ping(cable, 3)[1] < 2 * DELAY_S
    # Mending twice is no mistake.
    faults.mend(cable, PORT)
    faults.mend(cable, PORT)
    assert ping(cable, 3)[1] < DELAY_S


def test_corrupted_packets_are_not_answered_and_mended_ones_are(cable: Fabric) -> None:
    faults.degrade(cable, PORT, 0.0, 1.0)
    assert ping(cable, 5)[0] == 0
    faults.mend(cable, PORT)
    assert ping(cable, 5)[0] == 5
