"""Delay and corruption of a link by netem, on a kernel that has it: one cable without routing."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from control.fabric import Direction, Fault, FaultKind
from testbed.fabric import devices, doctor, faults, leftovers, links
from testbed.fabric.links import in_namespace
from testbed.fabric.model import Fabric, Plan
from testbed.fabric.plan import fabric_of

pytestmark = [pytest.mark.root, pytest.mark.slow]

PORT = Fault(FaultKind.PORT, host=0, uplink=0)
DELAY_S = 0.5
"""Far above the time of a packet under emulation."""
ARRIVES_S = 30.0
"""Longest wait for a datagram that must arrive, s: an emulated guest may stand still for seconds."""


@pytest.fixture(params=[None, 1e8], ids=["unlimited", "shaped"])
def cable(fabric_machine: None, request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """A fabric's first host and ToR with the link between them, addresses, neighbours and rate, and nothing
    else. ARP has no checksum: from a corrupted message an end would learn a wrong address."""
    if not doctor.has_netem():
        pytest.skip("this kernel has no netem; see make test-vm")
    fabric = fabric_of(Plan(name="netem", rate_bps=request.param))
    host, tor = fabric.hosts[0], fabric.tors[0]
    uplink = host.uplinks[0]
    ends = (
        (host.namespace, uplink.device, uplink.address, "02:00:00:00:00:01"),
        (tor.namespace, uplink.tor_device, uplink.gateway, "02:00:00:00:00:02"),
    )
    try:
        for namespace, *_ in ends:
            subprocess.run(["ip", "netns", "add", namespace], check=True)
        peer = f"peer name {uplink.tor_device} netns {tor.namespace}"
        links.output_of(
            host.namespace, ("ip", "-batch", "-"), text=f"link add {uplink.device} type veth {peer}\n"
        )
        for (namespace, device, address, mac), (_, _, other, other_mac) in zip(ends, ends[::-1], strict=True):
            lines = f"link set {device} address {mac} up\naddr add {address}/31 dev {device}\n"
            lines += f"neigh add {other} lladdr {other_mac} dev {device} nud permanent\n"
            links.output_of(namespace, ("ip", "-batch", "-"), text=lines)
            devices.shape(fabric.plan, namespace, [device])
        yield fabric
    finally:
        leftovers.remove("netem")


def times_s(fabric: Fabric, way: Direction, count: int = 3, within_s: float = ARRIVES_S) -> list[float]:
    """Return how long datagrams take over the link in one direction, s, up to the first that is lost."""
    uplink = fabric.hosts[0].uplinks[0]
    ends = [(fabric.hosts[0].namespace, uplink.address), (fabric.tors[0].namespace, uplink.gateway)]
    sockets = []
    for namespace, address in ends if way is Direction.OUT else reversed(ends):
        with in_namespace(namespace):
            sockets.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        sockets[-1].bind((address, 0))
    outbox, inbox = sockets
    times = []
    with outbox, inbox, suppress(TimeoutError):
        inbox.settimeout(within_s)
        for _ in range(count):
            began_s = time.monotonic()
            outbox.sendto(b"x" * 1000, inbox.getsockname())
            inbox.recv(2000)
            times.append(time.monotonic() - began_s)
    return times


def test_a_delayed_link_delays_its_directions_until_it_is_mended(cable: Fabric) -> None:
    faults.degrade(cable, PORT, DELAY_S, 0.0)
    assert all(min(times_s(cable, way)) >= DELAY_S for way in Direction)
    faults.mend(cable, PORT)
    assert all(min(times_s(cable, way)) < DELAY_S for way in Direction)
    faults.degrade(cable, replace(PORT, one_way=Direction.IN), DELAY_S, 0.0)
    assert min(times_s(cable, Direction.OUT)) < DELAY_S <= min(times_s(cable, Direction.IN))
    # Mending twice is no mistake.
    faults.mend(cable, PORT)
    faults.mend(cable, PORT)
    assert all(min(times_s(cable, way)) < DELAY_S for way in Direction)


def test_corrupted_packets_do_not_arrive_and_those_after_the_repair_do(cable: Fabric) -> None:
    assert all(len(times_s(cable, way)) == 3 for way in Direction)
    faults.degrade(cable, PORT, 0.0, 1.0)
    assert all(times_s(cable, way, within_s=4 * DELAY_S) == [] for way in Direction)
    faults.mend(cable, PORT)
    assert all(len(times_s(cable, way)) == 3 for way in Direction)
